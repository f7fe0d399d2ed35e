//! Signing in by a token, and out.

use std::time::Duration;

use askama::Template;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{HeaderMap, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::Shared;
use super::super::access::Peer;
use super::super::problem::Problem;
use super::fields::Fields;
use super::form::posted;
use super::frame::{Frame, Tab, go_to, page};
use super::visitor::{SESSION, Visitor, is_by_tls};
use crate::serve::config::Right;
use crate::time::now;

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3_600);

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    next: String,
    csrf: String,
    /// What was wrong with the last attempt.
    wrong: Option<&'static str>,
}

impl SignInPage {
    fn new(app: &Shared, next: &str, wrong: Option<&'static str>) -> Self {
        Self {
            frame: Frame::new(app, Tab::Other, None),
            next: next.to_owned(),
            csrf: app.pages.seal().form(""),
            wrong,
        }
    }
}

/// Where to sign in for a page.
pub(super) fn path(app: &Shared, page: &str) -> String {
    let next = utf8_percent_encode(page, NON_ALPHANUMERIC);
    format!("{}/sign-in?next={next}", app.base_path)
}

/// The page to go to: one of ours.
fn next<'a>(app: &'a Shared, fields: &'a Fields) -> &'a str {
    let is_ours = |path: &&str| {
        // A browser leaves out some signs, and takes others for a slash: what remains may begin with two, and so lead to
        // another host. The paths of our pages have none of them.
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let rest = path.strip_prefix(app.base_path.as_str());
        is_plain && !path.starts_with("//") && rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let home = match app.base_path.as_str() {
        "" => "/",
        base => base,
    };
    fields.one("next").filter(is_ours).unwrap_or(home)
}

/// `GET /sign-in`
pub(super) async fn show(
    State(app): State<Shared>,
    fields: Fields,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let next = next(&app, &fields);
    match Visitor::of(&app, &headers)? {
        Some(visitor) if visitor.caller.may(Right::Read) => Ok(go_to(next)),
        // Or its token shows no page, and it may have another one.
        _ => page(&SignInPage::new(&app, next, None)),
    }
}

/// `POST /sign-in`
pub(super) async fn enter(
    State(app): State<Shared>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
) -> Result<Response, Problem> {
    let request = posted(&app, "", request).await?;
    let fields = request.extensions().get::<Fields>().cloned().unwrap_or_default();
    let next = next(&app, &fields);
    let refused = |status: StatusCode, wrong| {
        let mut response = page(&SignInPage::new(&app, next, Some(wrong)))?;
        *response.status_mut() = status;
        Ok(response)
    };
    let token = fields.one("token").unwrap_or_default();
    let from = app.access.client(peer, request.headers());
    // First, so that no caller keeps out another one behind the same address.
    let Some(holder) = app.access.holder(token) else {
        return match app.access.is_too_often_wrong(from) {
            false => refused(StatusCode::FORBIDDEN, "This token is not known."),
            true => refused(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many wrong tokens came from this address: wait a minute.",
            ),
        };
    };
    let session = app.pages.seal().close(token, now().after(LASTS)).ok_or_else(|| {
        tracing::error!("the system has no random numbers, so no visitor can sign in");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "signing in is not possible at this time",
        )
    })?;
    tracing::info!(name = holder.name, %from, "signed in to the pages");
    let cookie = cookie(&app, request.headers(), &session, LASTS);
    Ok(with_cookie(go_to(next), &cookie))
}

/// `POST /sign-out`
pub(super) async fn leave(State(app): State<Shared>, headers: HeaderMap) -> Response {
    let cookie = cookie(&app, &headers, "", Duration::ZERO);
    with_cookie(go_to(&format!("{}/sign-in", app.base_path)), &cookie)
}

/// No script sees it, and no foreign page has it sent.
fn cookie(app: &Shared, headers: &HeaderMap, session: &str, lasts: Duration) -> String {
    let path = match app.base_path.as_str() {
        "" => "/",
        base => base,
    };
    let secure = if is_by_tls(headers) { "; Secure" } else { "" };
    let age = lasts.as_secs();
    format!("{SESSION}={session}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    match HeaderValue::from_str(cookie) {
        Ok(cookie) => {
            response.headers_mut().insert(SET_COOKIE, cookie);
            response
        }
        // There is nothing in it that no header may have.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
