//! Batches of which some rows are in the way of the others.

use std::future::Future;

/// Into how many parts a batch is split: so the row in the way of 500 others is found in three more steps, each of which
/// may have to wait for it once.
const PARTS: usize = 8;

/// What `step` answers for each of some batches, one after the other. A batch that fails because of some of its rows,
/// which `blame` tells by the error, is tried again by parts until these rows are alone.
pub(in crate::store) async fn by_parts<T, A, W, F>(
    batches: Vec<Vec<T>>,
    blame: impl Fn(&sqlx::Error) -> Option<W>,
    step: impl Fn(Vec<T>) -> F,
) -> Result<Vec<Result<A, W>>, sqlx::Error>
where
    T: Clone,
    W: Clone,
    F: Future<Output = Result<Vec<Result<A, W>>, sqlx::Error>>,
{
    let mut answers = Vec::new();
    let mut left = batches;
    left.reverse();
    while let Some(batch) = left.pop() {
        match step(batch.clone()).await {
            Ok(found) => answers.extend(found),
            Err(error) => match blame(&error) {
                None => return Err(error),
                Some(why) if batch.len() < 2 => answers.extend(batch.iter().map(|_| Err(why.clone()))),
                Some(_) => left.extend(parts(batch).into_iter().rev()),
            },
        }
    }
    Ok(answers)
}

/// The parts of a batch that failed because of some of its rows.
fn parts<T>(mut batch: Vec<T>) -> Vec<Vec<T>> {
    let size = batch.len().div_ceil(PARTS).max(1);
    let mut parts = Vec::with_capacity(PARTS);
    while !batch.is_empty() {
        let rest = batch.split_off(size.min(batch.len()));
        parts.push(std::mem::replace(&mut batch, rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_is_in_the_way_is_found_and_nobody_else_fails() {
        let step = |batch: Vec<usize>| async move {
            match batch.contains(&17) || batch.contains(&499) {
                true => Err(sqlx::Error::RowNotFound),
                false => Ok(batch.into_iter().map(Ok).collect()),
            }
        };
        let blame = |_: &_| Some("in the way");
        let answers = by_parts(vec![(0..500).collect(), vec![500]], blame, step)
            .await
            .unwrap();
        assert_eq!(answers.len(), 501);
        for (place, answer) in answers.into_iter().enumerate() {
            match place {
                17 | 499 => assert_eq!(answer, Err("in the way")),
                _ => assert_eq!(answer.unwrap(), place),
            }
        }
        let error = by_parts(vec![vec![17]], |_| None::<&str>, step).await;
        assert!(error.is_err());
    }
}
