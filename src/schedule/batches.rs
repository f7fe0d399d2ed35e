//! Many rows, in as few calls of the store as there can be.

use crate::{Error, defaults};

/// In parts that each go into one call.
pub(super) fn batches<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    batches_of(all, |_| 0)
}

/// The same, where each has so many bytes: more than may go into one call it has only by itself.
pub(super) fn batches_of<T>(all: Vec<T>, bytes_of: impl Fn(&T) -> usize) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = all.next()?;
        let mut bytes = bytes_of(&first);
        let mut batch = vec![first];
        while batch.len() < defaults::BATCH
            && let Some(next) =
                all.next_if(|next| bytes.saturating_add(bytes_of(next)) <= defaults::BATCH_BYTES)
        {
            bytes += bytes_of(&next);
            batch.push(next);
        }
        Some(batch)
    })
}

/// Calls the store for those that can be used: an answer for each, in the order given. One that cannot be used or written
/// keeps no other from it.
pub(super) async fn each<T, A, C, F>(
    all: Vec<Result<T, Error>>,
    bytes_of: impl Fn(&T) -> usize,
    call: C,
) -> Vec<Result<A, Error>>
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
    for batch in batches_of(usable, bytes_of) {
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
