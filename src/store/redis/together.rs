//! Calls on several slots, side by side, and what to make of those that fail.

use futures_util::future::{JoinAll, join_all};

use super::closed::is_closed;
use crate::Error;

/// What calls give that run side by side, in the order given.
pub(super) fn together<F, T>(calls: impl IntoIterator<Item = F>) -> JoinAll<F>
where
    F: Future<Output = Result<T, Error>>,
{
    join_all(calls)
}

/// How many calls on one slot are on their way at once: the server need not wait for the next one, and others find their
/// turn between them. One that has to be repeated may be made after the next one.
pub(super) const ON_THE_WAY: usize = 2;

/// All or the first error; that a slot is closed before any other, as it says what to do.
pub(super) fn all<T>(results: Vec<Result<T, Error>>) -> Result<Vec<T>, Error> {
    let mut given = Vec::with_capacity(results.len());
    let mut failed = None;
    for result in results {
        match result {
            Ok(one) => given.push(one),
            Err(error) if is_closed(&error) => return Err(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        None => Ok(given),
        Some(error) => Err(error),
    }
}

/// What calls have given, unless one of them met a closed slot: then that error.
pub(super) fn none_closed<T>(results: Vec<Result<T, Error>>) -> Result<Vec<Result<T, Error>>, Error> {
    let mut given = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Err(error) if is_closed(&error) => return Err(error),
            result => given.push(result),
        }
    }
    Ok(given)
}

/// What calls have given where one that failed must not spoil the others: an error only if all have failed.
pub(super) fn those_that_succeeded<T>(results: Vec<Result<T, Error>>) -> Result<Vec<Option<T>>, Error> {
    let has_success = results.is_empty() || results.iter().any(Result::is_ok);
    let given = |result: Result<T, Error>| match result {
        Ok(given) => Ok(Some(given)),
        Err(error) if has_success && is_closed(&error) => Ok(None),
        Err(error) if has_success => {
            tracing::warn!(%error, "a part of the tasks is out of reach");
            Ok(None)
        }
        Err(error) => Err(error),
    };
    results.into_iter().map(given).collect()
}
