//! Who looks at a page.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{COOKIE, HOST, HeaderMap, ORIGIN};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::super::access::{Caller, local};
use super::super::problem::Problem;
use super::super::{App, Shared, now};
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::sign_in;
use crate::operations::Operations;
use crate::serve::config::Right;

/// The cookie that is a session.
pub(super) const SESSION: &str = "delayline_session";
/// How many bytes a form has at the most.
const FORM: usize = 64 << 10;

/// Who looks at a page.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// What its token allows.
    pub(super) caller: Caller,
    /// Whose token it is; none where no token is needed.
    pub(super) name: Option<String>,
    /// What its forms have in them.
    pub(super) csrf: String,
}

impl Visitor {
    /// None if he has to sign in first.
    pub(super) fn of(app: &Shared, headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let session = session(headers).unwrap_or_default();
        if app.access.is_open() {
            local(headers)?;
            return Ok(Some(Self {
                caller: Caller::of("page", None),
                name: None,
                csrf: app.pages.seal.form(""),
            }));
        }
        let token = app.pages.seal.open(session, now());
        let holder = token.and_then(|token| app.access.holder(&token));
        Ok(holder.map(|holder| Self {
            caller: Caller::of("page", Some(holder)),
            name: Some(holder.name.clone()),
            csrf: app.pages.seal.form(session),
        }))
    }

    /// What can be done with tasks, for the reason that a form gives.
    pub(super) fn operations(&self, app: &App, fields: &Fields) -> Result<Operations, Problem> {
        Ok(self.caller.operations(app).because(fields.reason()?))
    }

    pub(super) fn may_change(&self) -> bool {
        self.caller.may(Right::Change)
    }
}

/// The session that a browser has sent; of several cookies of its name the first one.
fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
    cookies.find_map(|cookie| cookie.trim().strip_prefix(SESSION)?.strip_prefix('='))
}

/// Lets only those through who have the right, and forms only of this server's own pages.
pub(super) async fn enter(
    State((app, right)): State<(Shared, Right)>,
    request: Request,
    next: Next,
) -> Response {
    let visitor = match Visitor::of(&app, request.headers()) {
        Ok(Some(visitor)) => visitor,
        Ok(None) => return unknown(&app, &request),
        Err(problem) => return problem.into_response(),
    };
    if let Err(problem) = visitor.caller.need(right) {
        return with(problem.into_response(), visitor);
    }
    let session = session(request.headers()).filter(|_| !app.access.is_open());
    let session = session.unwrap_or_default().to_owned();
    let mut request = match posted(&app, &session, request).await {
        Ok(request) => request,
        Err(problem) => return with(problem.into_response(), visitor),
    };
    request.extensions_mut().insert(visitor.clone());
    request.extensions_mut().insert(visitor.caller.clone());
    with(next.run(request).await, visitor)
}

/// Says with an answer who asked, for a page that says what was wrong.
fn with(mut response: Response, visitor: Visitor) -> Response {
    response.extensions_mut().insert(visitor);
    response
}

/// Who has to sign in is asked to, if it is a page that he wants.
fn unknown(app: &Shared, request: &Request) -> Response {
    let accepts = request.headers().get("accept").map(|accept| accept.as_bytes());
    let is_events = accepts.is_some_and(|accept| accept.starts_with(b"text/event-stream"));
    if request.method() != Method::GET || is_events {
        let detail = "the session has ended: sign in again";
        return Problem::new(StatusCode::UNAUTHORIZED, detail).into_response();
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", app.base_path);
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site == "cross-site") {
        let again = page(&AgainPage {
            frame: Frame::new(app, Tab::Other, None),
            path,
        });
        return again.unwrap_or_else(|problem| problem.into_response());
    }
    go_to(&sign_in::path(app, &path))
}

/// What somebody is shown who has followed a link from elsewhere, with which a browser does not send the session: it asks
/// once more, and then from here.
#[derive(Debug, Template)]
#[template(path = "again.html")]
struct AgainPage {
    frame: Frame,
    path: String,
}

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
        .seal
        .is_form(session, fields.one("csrf").unwrap_or_default())
    {
        return Err(forbidden());
    }
    let mut request = Request::from_parts(parts, axum::body::Body::empty());
    request.extensions_mut().insert(fields);
    Ok(request)
}

/// Whether a form is not of a page of somebody else's, as the browser says. Behind what ends TLS only the newer header is
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

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        let cookies = "theme=dark; delayline_session_old=1; delayline_session=a.b-c; x=y";
        headers.insert(COOKIE, HeaderValue::from_static(cookies));
        assert_eq!(session(&headers), Some("a.b-c"));
        assert_eq!(session(&HeaderMap::new()), None);
    }
}
