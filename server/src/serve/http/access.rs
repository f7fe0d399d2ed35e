//! Checks the token of each request: whose it is, which rights it has, and how many wrong ones an address may try.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use delayline::{Kind, Timestamp};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::App;
use super::Shared;
use super::patience::Patience;
use super::problem::Problem;
use crate::operations::{Operations, Refusal, Scope};
use crate::serve::config::{Proxies, Right, Token};

/// The tokens that are let in; without any, every caller that reaches the server is.
#[derive(Debug, Default)]
pub(crate) struct Access {
    allowed: RwLock<Arc<Allowed>>,
    patience: Patience,
}

#[derive(Debug, Default)]
struct Allowed {
    tokens: Vec<Arc<Token>>,
    proxies: Proxies,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(SocketAddr);

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}

/// The caller of a request, known by its token; where there are no tokens, any.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// What it asks: `api` or `page`.
    face: &'static str,
    token: Option<Arc<Token>>,
    /// When its session ends, if it has one.
    until: Option<Timestamp>,
}

impl Scope for Token {
    fn has(&self, kind: &Kind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.allow(kind.as_str()))
    }

    fn refusal(&self, kind: &Kind) -> String {
        let (name, kind) = (&self.name, kind.as_str());
        format!("the token of {name:?} is for other kinds than {kind:?}")
    }
}

impl Caller {
    /// A caller of a face, with its token where there are tokens; without one it may do everything.
    pub(super) fn of(face: &'static str, token: Option<&Arc<Token>>) -> Self {
        Self {
            face,
            token: token.cloned(),
            until: None,
        }
    }

    /// Gives it a session until a time.
    pub(super) fn until(self, until: Timestamp) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    /// Whether its session has ended.
    pub(super) fn has_ended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The name of its token.
    pub(super) fn name(&self) -> &str {
        self.token.as_ref().map_or("anybody", |token| &token.name)
    }

    /// The name that histories have of it.
    pub(super) fn actor(&self) -> String {
        format!("{}:{}", self.face, self.name())
    }

    /// What it can do with tasks.
    pub(super) fn operations(&self, app: &App) -> Operations {
        let operations = Operations::new(&app.scheduler, Arc::clone(&app.store), self.actor());
        match &self.token {
            Some(token) => operations.within(Arc::clone(token) as _),
            None => operations,
        }
    }

    pub(super) fn may(&self, right: Right) -> bool {
        self.token.as_ref().is_none_or(|token| token.may.contains(&right))
    }

    /// Refuses what takes a right that the caller has not.
    pub(super) fn need(&self, right: Right) -> Result<(), Problem> {
        self.need_one(&[right])
    }

    /// Refuses what takes one of these rights, if the caller has none of them.
    fn need_one(&self, rights: &[Right]) -> Result<(), Problem> {
        if rights.iter().any(|right| self.may(*right)) {
            return Ok(());
        }
        let names: Vec<_> = rights.iter().map(|right| right.name()).collect();
        let detail = format!("the token of {:?} may not {}", self.name(), names.join(" nor "));
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }

    /// Whether its token is for tasks of this kind.
    pub(super) fn reaches(&self, kind: &Kind) -> bool {
        self.token.as_ref().is_none_or(|token| token.has(kind))
    }

    /// Whether its token is for tasks of all kinds.
    pub(super) fn reaches_all(&self) -> bool {
        self.token.as_ref().is_none_or(|token| token.kinds.is_none())
    }

    /// Refuses a kind that its token is not for.
    pub(super) fn reach(&self, kind: &Kind) -> Result<(), Problem> {
        match &self.token {
            Some(token) if !token.has(kind) => Err(Refusal::OtherKinds(token.refusal(kind)).into()),
            _ => Ok(()),
        }
    }

    /// Refuses what is about tasks of all kinds together, if its token is for some.
    pub(super) fn reach_all(&self) -> Result<(), Problem> {
        match self.reaches_all() {
            true => Ok(()),
            false => {
                let detail = format!(
                    "the token of {:?} is for some kinds, and this is about all together",
                    self.name()
                );
                Err(Problem::new(StatusCode::FORBIDDEN, detail))
            }
        }
    }
}

impl Access {
    pub(crate) fn new(tokens: impl IntoIterator<Item = Token>, proxies: Proxies) -> Self {
        let tokens = tokens.into_iter().map(Arc::new).collect();
        Self {
            allowed: RwLock::new(Arc::new(Allowed { tokens, proxies })),
            patience: Patience::default(),
        }
    }

    /// Lets in those of the other from now on, and no others.
    pub(crate) fn replace(&self, by: &Self) {
        *self.allowed.write().unwrap_or_else(PoisonError::into_inner) = by.allowed();
    }

    fn allowed(&self) -> Arc<Allowed> {
        Arc::clone(&self.allowed.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether every caller is let in that reaches the server.
    pub(super) fn is_open(&self) -> bool {
        self.allowed().tokens.is_empty()
    }

    /// Whether a caller that was let in still is, with the same rights.
    pub(super) fn still_lets_in(&self, caller: &Caller) -> bool {
        match &caller.token {
            Some(token) => self.allowed().tokens.contains(token),
            None => self.is_open(),
        }
    }

    pub(super) fn digests(&self) -> Vec<[u8; 32]> {
        let allowed = self.allowed();
        allowed.tokens.iter().map(|token| token.sha256.0).collect()
    }

    /// The token that this is; an empty text is none, whatever the digests.
    pub(super) fn holder(&self, token: &str) -> Option<Arc<Token>> {
        if token.is_empty() {
            return None;
        }
        let digest = Sha256::digest(token);
        let (allowed, mut known) = (self.allowed(), None);
        // All of them, so that how long it takes says nothing.
        for token in &allowed.tokens {
            if bool::from(token.sha256.0.ct_eq(digest.as_slice())) {
                known = Some(Arc::clone(token));
            }
        }
        known
    }

    /// The address of the client of a request, behind proxies of one's own.
    pub(super) fn client(&self, Peer(peer): Peer, headers: &HeaderMap) -> IpAddr {
        let forwarded = headers.get_all("x-forwarded-for").iter();
        let forwarded: Vec<_> = forwarded.filter_map(|value| value.to_str().ok()).collect();
        self.allowed().proxies.client(peer.ip(), forwarded.into_iter())
    }

    /// Notes a token that is not known; says whether more came from this address than are answered one by one. A token
    /// that is known is not asked about, so no other caller behind the same address has to wait.
    pub(super) fn is_too_often_wrong(&self, from: IpAddr) -> bool {
        let wrong = self.patience.add(from, Instant::now());
        match wrong.is_too_often() {
            false => tracing::warn!(%from, "a token is not known"),
            true if wrong.is_first_of_too_many() => tracing::warn!(
                %from,
                "many tokens that are not known come from this address; of the next minute they are not logged"
            ),
            true => {}
        }
        wrong.is_too_often()
    }

    /// The caller of a request, if it has one of these rights.
    fn check(&self, request: &Request, rights: &[Right]) -> Result<Caller, Problem> {
        let headers = request.headers();
        if self.is_open() {
            return local(headers).map(|()| Caller::of("api", None));
        }
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let token = token.filter(|token| !token.is_empty()).ok_or_else(unknown)?;
        let Some(known) = self.holder(token) else {
            let peer = request.extensions().get::<ConnectInfo<Peer>>();
            let from = peer.map(|ConnectInfo(peer)| self.client(*peer, headers));
            return Err(match from.is_some_and(|from| self.is_too_often_wrong(from)) {
                true => Problem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "many tokens that are not known came from this address, and so is this one: wait a minute",
                ),
                false => unknown(),
            });
        };
        let caller = Caller::of("api", Some(&known));
        caller.need_one(rights).map(|()| caller)
    }
}

fn unknown() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "the header Authorization has no token that is known",
    )
}

/// Refuses requests of other sites' pages where no token keeps them out, by `Origin` and `Host`: against cross-site
/// requests and DNS rebinding.
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

/// Lets only callers through that have one of the rights.
pub(super) async fn require(
    State((app, rights)): State<(Shared, &'static [Right])>,
    mut request: Request,
    next: Next,
) -> Response {
    match app.access.check(&request, rights) {
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
            if status == StatusCode::TOO_MANY_REQUESTS {
                let minute = HeaderValue::from_static("60");
                response.headers_mut().insert(RETRY_AFTER, minute);
            }
            response
        }
    }
}
