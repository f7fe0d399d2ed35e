//! The visitor of a page.

use axum::http::header::{COOKIE, HOST, HeaderMap};

use super::super::access::{Caller, local};
use super::super::problem::Problem;
use super::super::{App, Shared};
use super::fields::Fields;
use super::signs::Signs;
use crate::operations::Operations;
use crate::serve::config::Right;
use crate::time::now;

/// The cookie that is a session.
pub(super) const SESSION: &str = "delayline_session";

/// A person with a browser, known by the session.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// What its token allows.
    pub(super) caller: Caller,
    /// Whose token it is; none where no token is needed.
    pub(super) name: Option<String>,
    /// What its forms have in them.
    pub(super) csrf: String,
    /// What it may know that is wrong.
    pub(super) signs: Signs,
    /// The scheme and the host by which its browser knows this server.
    pub(super) origin: String,
}

impl Visitor {
    /// None before a sign-in.
    pub(super) fn of(app: &Shared, headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let session = session(headers).unwrap_or_default();
        let origin = origin(headers);
        if app.access.is_open() {
            local(headers)?;
            return Ok(Some(Self {
                caller: Caller::of("page", None),
                name: None,
                csrf: app.pages.seal().form(""),
                signs: Signs::default(),
                origin,
            }));
        }
        let opened = app.pages.seal().open(session, now());
        let known = opened.and_then(|(token, until)| Some((app.access.holder(&token)?, until)));
        Ok(known.map(|(holder, until)| Self {
            caller: Caller::of("page", Some(&holder)).until(until),
            name: Some(holder.name.clone()),
            csrf: app.pages.seal().form(session),
            signs: Signs::default(),
            origin,
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

fn origin(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let scheme = if is_by_tls(headers) { "https" } else { "http" };
    format!("{scheme}://{}", host.unwrap_or_default())
}

/// Whether a proxy that ends TLS has passed the request on.
pub(super) fn is_by_tls(headers: &HeaderMap) -> bool {
    headers
        .get("x-forwarded-proto")
        .is_some_and(|proto| proto == "https")
}

/// The session that a browser has sent; of several cookies of its name the first one.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
    cookies.find_map(|cookie| cookie.trim().strip_prefix(SESSION)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        let cookies = "theme=dark; delayline_session_old=1; delayline_session=a.b-c; x=y";
        headers.insert(COOKIE, HeaderValue::from_static(cookies));
        assert_eq!(session(&headers), Some("a.b-c"));
        assert_eq!(session(&HeaderMap::new()), None);
    }
}
