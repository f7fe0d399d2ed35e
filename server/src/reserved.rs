//! Kinds and headers that are not for callers.

use std::collections::BTreeMap;

use delayline::store::Paused;
use delayline::{Kind, Task};

/// The names of kinds begin so whose tasks are the server's own, such as pauses, and messages that were rejected.
const OURS: &str = "delayline.";

/// Whether the tasks of a kind are the server's own: callers may look at them, and give up those that are dead.
pub(crate) fn is_reserved(kind: &str) -> bool {
    kind.starts_with(OURS)
}

/// Refuses a kind whose tasks are the server's own.
pub(crate) fn check(kind: &str) -> Result<(), delayline::Error> {
    match is_reserved(kind) {
        true => Err(refused(kind)),
        false => Ok(()),
    }
}

/// Refuses a change of a task that is the server's own, unless it gives up what is dead.
pub(crate) fn check_change(kind: &Kind, is_dismissal: bool) -> Result<(), delayline::Error> {
    match is_dismissal && kind.as_str() != Paused::KIND {
        true => Ok(()),
        false => check(kind.as_str()),
    }
}

fn refused(kind: &str) -> delayline::Error {
    delayline::Error::Invalid {
        field: "kind",
        value: kind.to_owned(),
        allowed: format!("allowed are kinds that do not begin with {OURS}, whose tasks are the server's own"),
    }
}

/// The headers of tasks begin so that are the server's own, whatever their case.
pub(crate) const OUR_HEADERS: &str = "DELAYLINE_";

/// The header in which a task keeps which requests it is of. It comes from no caller, and is shown to none.
pub(crate) const REQUESTS: &str = "DELAYLINE_REQUESTS";

/// Refuses headers that only the server itself writes.
pub(crate) fn check_headers<'h>(names: impl Iterator<Item = &'h String>) -> Result<(), delayline::Error> {
    let is_ours = |name: &&String| {
        let beginning = name.as_bytes().get(..OUR_HEADERS.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(OUR_HEADERS.as_bytes()))
    };
    match { names }.find(is_ours) {
        Some(name) => Err(delayline::Error::Invalid {
            field: "headers",
            value: name.clone(),
            allowed: format!(
                "allowed are names that do not begin with {OUR_HEADERS}, which are the server's own"
            ),
        }),
        None => Ok(()),
    }
}

/// Whether callers may schedule the like of a task: neither its kind nor its headers are the server's own, as those of
/// messages are, which the gateway alone schedules.
pub(crate) fn is_of_callers(task: &Task) -> bool {
    let headers = shown(task.headers.clone());
    check(task.kind.as_str()).is_ok() && check_headers(headers.keys()).is_ok()
}

/// Headers without those that are shown to no caller.
pub(crate) fn shown(mut headers: BTreeMap<String, String>) -> BTreeMap<String, String> {
    headers.remove(REQUESTS);
    headers
}
