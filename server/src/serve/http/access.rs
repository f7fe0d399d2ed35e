//! Who may do what.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use delayline::Scheduler;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::App;
use super::Shared;
use super::problem::Problem;
use crate::reason::Reason;
use crate::serve::config::{Right, Token};

/// The tokens that are let in; without any, everybody who reaches the server is.
#[derive(Debug)]
pub(crate) struct Access(Vec<Token>);

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller(pub(super) String);

impl Caller {
    /// The scheduler for what this caller asks for, for this reason, if one was given.
    pub(super) fn scheduler(&self, app: &App, reason: Option<Reason>) -> Scheduler {
        let scheduler = app.scheduler.by(&format!("api:{}", self.0));
        match reason {
            Some(reason) => reason.given_to(&scheduler),
            None => scheduler,
        }
    }
}

impl Access {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// Whether everybody is let in who reaches the server.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn digests(&self) -> impl Iterator<Item = [u8; 32]> {
        self.0.iter().map(|token| token.sha256.0)
    }

    /// Whose token this is.
    pub(super) fn holder(&self, token: &str) -> Option<&Token> {
        let digest = Sha256::digest(token);
        let mut known = None;
        // All of them, so that how long it takes says nothing.
        for token in &self.0 {
            if bool::from(token.sha256.0.ct_eq(digest.as_slice())) {
                known = Some(token);
            }
        }
        known
    }

    /// Who asks, if whoever it is has one of these rights.
    fn check(&self, headers: &HeaderMap, rights: &[Right]) -> Result<Caller, Problem> {
        if self.is_open() {
            return local(headers).map(|()| Caller("anybody".to_owned()));
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let unknown = || {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "the header Authorization has no token that is known",
            )
        };
        let known = token.and_then(|token| self.holder(token)).ok_or_else(unknown)?;
        if rights.iter().any(|right| known.may.contains(right)) {
            return Ok(Caller(known.name.clone()));
        }
        let names: Vec<_> = rights.iter().map(|right| right.name()).collect();
        let detail = format!("the token of {:?} may not {}", known.name, names.join(" nor "));
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }
}

/// Refuses what a page of somebody else's has a browser on this machine ask, where no token keeps it out: it says where it
/// comes from, or, if its own name has come to mean this machine, whom it means.
pub(super) fn local(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).unwrap_or_default();
    let authority: Option<Authority> = host.parse().ok();
    let is_here = authority.as_ref().is_some_and(|authority| {
        let name = authority.host().trim_matches(['[', ']']);
        name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    });
    let forbidden = |field: &str| {
        let detail =
            format!("{field} is not this machine: without http.tokens, allowed is only what comes from here");
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    };
    if !is_here {
        return forbidden("Host");
    }
    match text(ORIGIN) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => forbidden("Origin"),
        _ => Ok(()),
    }
}

/// Lets only those through who have one of the rights.
pub(super) async fn require(
    State((app, rights)): State<(Shared, &'static [Right])>,
    mut request: Request,
    next: Next,
) -> Response {
    match app.access.check(request.headers(), rights) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => {
            let status = problem.status();
            let mut response = problem.into_response();
            if status == StatusCode::UNAUTHORIZED {
                let scheme = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}
