//! What pages are shown with, from within the binary.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;

/// `GET /assets/page.css`
pub(super) async fn style() -> impl IntoResponse {
    of_type("text/css; charset=utf-8", include_str!("page.css"))
}

/// `GET /assets/live.js`
pub(super) async fn script() -> impl IntoResponse {
    of_type("text/javascript; charset=utf-8", include_str!("live.js"))
}

/// `GET /assets/icon.svg`
pub(super) async fn icon() -> impl IntoResponse {
    of_type("image/svg+xml", include_str!("icon.svg"))
}

fn of_type(name: &'static str, text: &'static str) -> impl IntoResponse {
    // They are of the same release as the page that asks for them.
    ([(CONTENT_TYPE, name), (CACHE_CONTROL, "no-cache")], text)
}
