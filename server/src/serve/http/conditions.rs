//! Conditions of requests: refused where none is evaluated.

use axum::http::HeaderMap;

use super::problem::Problem;

const IF_MATCH: &str = "If-Match";
const IF_NONE_MATCH: &str = "If-None-Match";

/// Where one is evaluated: what is said of those that come with other requests.
pub(super) const WITH_VERBS: &str =
    "allowed is If-Match with a verb of one task, such as edit or cancel: the ETag of the task before it";

/// Refuses what no verb evaluates.
pub(super) fn none_but_if_match(headers: &HeaderMap) -> Result<(), Problem> {
    without(headers, IF_NONE_MATCH, WITH_VERBS)
}

/// Refuses any: a change that its caller takes for guarded must not be done all the same. `allowed` says what is possible in
/// its place.
pub(super) fn none(headers: &HeaderMap, allowed: &str) -> Result<(), Problem> {
    without(headers, IF_MATCH, allowed)?;
    without(headers, IF_NONE_MATCH, allowed)
}

fn without(headers: &HeaderMap, name: &str, allowed: &str) -> Result<(), Problem> {
    match headers.get(name) {
        Some(value) => {
            let value = String::from_utf8_lossy(value.as_bytes());
            Err(Problem::invalid(name, value, allowed))
        }
        None => Ok(()),
    }
}
