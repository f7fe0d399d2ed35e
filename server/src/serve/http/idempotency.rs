//! Requests that come again: a request that its caller has named is done once.
//!
//! The name is the id of the task that the request makes, so the store itself knows a repeat of it. What it was about is kept
//! with the task in a header of the server's own. So is it with a task that it has replaced, which keeps the names of the last
//! requests.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::{Task, TaskId};
use sha2::{Digest as _, Sha256};

use super::access::Caller;
use super::problem::Problem;
use crate::reserved::REQUESTS;
use crate::serve::derived_id::derived_id;

pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How many bytes a name may have.
const LONGEST: usize = 255;
/// How many requests a task knows that have replaced it.
const KNOWN: usize = 16;

/// The name of a request, as its caller says it.
pub(super) fn name(headers: &HeaderMap) -> Result<Option<&[u8]>, Problem> {
    let name = headers.get(IDEMPOTENCY_KEY).map(|name| name.as_bytes());
    let is_plain = |name: &[u8]| {
        (1..=LONGEST).contains(&name.len()) && name.iter().all(|byte| (b' '..=b'~').contains(byte))
    };
    match name {
        Some(name) if !is_plain(name) => Err(Problem::invalid(
            "Idempotency-Key",
            String::from_utf8_lossy(name),
            format!("allowed are 1 to {LONGEST} characters of ASCII"),
        )),
        name => Ok(name),
    }
}

/// Refuses a name where none is kept: a change that its caller takes for safe to repeat must not be done twice. `repeated`
/// says what is to be known of one that is.
pub(super) fn not_named(headers: &HeaderMap, repeated: &str) -> Result<(), Problem> {
    match name(headers)? {
        Some(name) => Err(Problem::invalid(
            "Idempotency-Key",
            String::from_utf8_lossy(name),
            format!("allowed is one where tasks are scheduled; {repeated}"),
        )),
        None => Ok(()),
    }
}

/// What a request is about.
#[derive(Clone)]
pub(super) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(super) fn of(method: &str) -> Self {
        let mut of = Self(Sha256::new());
        of.add(method.as_bytes());
        of
    }

    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(part.len().to_be_bytes());
        self.0.update(part);
    }

    fn text(self) -> String {
        URL_SAFE_NO_PAD.encode(&self.0.finalize()[..16])
    }
}

/// A request of this name, or its part that is about one task of an array.
pub(super) struct Named {
    /// The id of the task that it makes.
    pub(super) id: TaskId,
    fingerprint: String,
}

/// What a request did when it came for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Make,
    Replace,
}

impl Named {
    /// `at`: its place in an array.
    pub(super) fn new(caller: &Caller, name: &[u8], at: usize, fingerprint: Fingerprint) -> Self {
        Self {
            id: derived_id([caller.name().as_bytes(), name], &at.to_be_bytes()),
            fingerprint: fingerprint.text(),
        }
    }

    /// What this request did to a task, if it has come before. Another one of its name is refused.
    pub(super) fn did(&self, task: &Task) -> Result<Option<Did>, Problem> {
        let id = self.id.to_string();
        let mut known = requests(&task.headers);
        let fingerprint = known.find_map(|request| request.strip_prefix(&id)?.strip_prefix(':'));
        let did = match task.id == self.id {
            true => Did::Make,
            false => Did::Replace,
        };
        match fingerprint {
            Some(fingerprint) if fingerprint != self.fingerprint => Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Idempotency-Key is that of another request, with another content; nothing was done: each request has a \
                 key of its own",
            )),
            Some(_) => Ok(Some(did)),
            // One of an earlier release, or replaced by a request without a name.
            None => Ok((did == Did::Make).then_some(did)),
        }
    }

    /// What a task keeps of this request, and of those that were before it.
    pub(super) fn kept(&self, replaced: Option<&Task>) -> String {
        let mut kept: Vec<_> = replaced.map_or_else(Vec::new, |task| requests(&task.headers).collect());
        let own = format!("{}:{}", self.id, self.fingerprint);
        kept.push(&own);
        kept[kept.len().saturating_sub(KNOWN)..].join(" ")
    }
}

fn requests(headers: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    let kept = headers.get(REQUESTS).map(String::as_str).unwrap_or_default();
    kept.split(' ').filter(|request| !request.is_empty())
}
