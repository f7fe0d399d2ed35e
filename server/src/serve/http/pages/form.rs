//! Forms: those of this server's own pages alone are taken.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::{HOST, HeaderMap, ORIGIN};
use axum::http::{Method, StatusCode};

use super::super::Shared;
use super::super::problem::Problem;
use super::fields::Fields;

/// How many bytes a form has at the most.
const FORM: usize = 64 << 10;

/// A request whose form, if it is one, is of a page of this server and of this session; its fields are with it.
pub(super) async fn posted(app: &Shared, session: &str, request: Request) -> Result<Request, Problem> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let forbidden = || {
        let detail = "this form is not of a page of this server, or the server was started again since: load the page \
                      again; nothing was done";
        Problem::new(StatusCode::FORBIDDEN, detail)
    };
    if !is_from_here(request.headers()) {
        return Err(forbidden());
    }
    let (parts, body) = request.into_parts();
    let too_large = |_| {
        let detail = format!("the form has more than {FORM} bytes; nothing was done");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    let fields = Fields::parse(&to_bytes(body, FORM).await.map_err(too_large)?);
    if !app
        .pages
        .seal()
        .is_form(session, fields.one("csrf").unwrap_or_default())
    {
        return Err(forbidden());
    }
    let mut request = Request::from_parts(parts, axum::body::Body::empty());
    request.extensions_mut().insert(fields);
    Ok(request)
}

/// Whether a form is of a page of this server, as the browser says. Behind a proxy that ends TLS only the newer header is
/// right about the scheme, so it is asked first; and one that says neither is no browser of today.
fn is_from_here(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text("sec-fetch-site") {
        return ["same-origin", "none"].contains(&site);
    }
    let host = text(HOST.as_str()).unwrap_or_default();
    text(ORIGIN.as_str()).is_none_or(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority == Some(host)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_form_of_another_page_is_known_by_what_the_browser_says() {
        for (headers, is_so) in [
            (&[][..], true),
            (
                &[("sec-fetch-site", "same-origin"), ("origin", "https://d.example")],
                true,
            ),
            (&[("sec-fetch-site", "none")], true),
            (
                &[("sec-fetch-site", "same-site"), ("origin", "http://d.example")],
                false,
            ),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("origin", "http://d.example")], true),
            (&[("origin", "https://d.example")], true),
            (&[("origin", "http://d.example:81")], false),
            (&[("origin", "http://shop.example")], false),
            (&[("origin", "null")], false),
        ] {
            let mut map = HeaderMap::new();
            map.insert(HOST, HeaderValue::from_static("d.example"));
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(is_from_here(&map), is_so, "{headers:?}");
        }
    }
}
