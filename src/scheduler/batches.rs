//! Many rows, in as few calls of the store as there can be.

use crate::{Error, defaults};

/// In parts that each go into one call.
pub(super) fn batches<T>(mut all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || {
        let rest = all.split_off(all.len().min(defaults::BATCH));
        let batch = std::mem::replace(&mut all, rest);
        (!batch.is_empty()).then_some(batch)
    })
}

/// Calls the store for those that can be used: an answer for each, in the order given. One that cannot be used or written
/// keeps no other from it.
pub(super) async fn each<T, A, C, F>(all: Vec<Result<T, Error>>, call: C) -> Vec<Result<A, Error>>
where
    C: Fn(Vec<T>) -> F,
    F: Future<Output = Result<Vec<Result<A, Error>>, Error>>,
{
    // Of those that can be used the answers follow.
    let (mut refused, mut usable) = (Vec::with_capacity(all.len()), Vec::new());
    for one in all {
        match one {
            Ok(one) => {
                usable.push(one);
                refused.push(None);
            }
            Err(error) => refused.push(Some(Err(error))),
        }
    }
    let mut answers = Vec::with_capacity(usable.len());
    for batch in batches(usable) {
        let count = batch.len();
        match call(batch).await {
            Ok(found) => answers.extend(found),
            Err(error) => answers.extend((0..count).map(|_| Err(error.once_more()))),
        }
    }
    let mut answers = answers.into_iter();
    let each = refused
        .into_iter()
        .filter_map(|refused| refused.or_else(|| answers.next()));
    each.collect()
}
