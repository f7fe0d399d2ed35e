//! Writes a batch that fails because of some of its rows by smaller and smaller parts, until those rows are alone.

use std::future::Future;

use super::errors::RowError;
use crate::store::table::Outcome;

/// Into how many parts a batch is split: so the row in the way of 500 others is found in three more steps, each of which
/// may have to wait for it once.
const PARTS: usize = 8;

/// What came of each row of some batches, which `step` writes one after the other. A batch that fails because of some of its
/// rows, as `classify` tells by the error, is tried again by parts until these rows are alone.
pub(super) async fn by_parts<T, F>(
    store: &'static str,
    batches: impl Iterator<Item = Vec<T>>,
    classify: impl Fn(&sqlx::Error) -> Option<RowError>,
    step: impl Fn(Vec<T>) -> F,
) -> Result<Vec<Outcome>, sqlx::Error>
where
    T: Clone,
    F: Future<Output = Result<Vec<Outcome>, sqlx::Error>>,
{
    let mut outcomes = Vec::new();
    let mut left: Vec<_> = batches.filter(|batch| !batch.is_empty()).collect();
    left.reverse();
    while let Some(batch) = left.pop() {
        match step(batch.clone()).await {
            Ok(came) => outcomes.extend(came),
            Err(error) => match classify(&error) {
                None => return Err(error),
                Some(why) if batch.len() < 2 => outcomes.push(why.outcome(store)),
                Some(_) => {
                    let parts = batch.chunks(batch.len().div_ceil(PARTS)).rev();
                    left.extend(parts.map(<[T]>::to_vec));
                }
            },
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_row_in_the_way_is_found_and_no_other_fails() {
        let step = |batch: Vec<usize>| async move {
            match batch.contains(&17) || batch.contains(&499) {
                true => Err(sqlx::Error::RowNotFound),
                false => Ok(batch.into_iter().map(|_| Outcome::Written).collect()),
            }
        };
        let classify = |_: &_| Some(RowError::Taken);
        let batches = || [(0..500).collect(), vec![500]].into_iter();
        let outcomes = by_parts("s", batches(), classify, step).await.unwrap();
        assert_eq!(outcomes.len(), 501);
        for (place, outcome) in outcomes.iter().enumerate() {
            assert_eq!(outcome.is_written(), ![17, 499].contains(&place), "{place}");
        }
        let error = by_parts("s", batches(), |_| None, step).await;
        assert!(error.is_err());
    }
}
