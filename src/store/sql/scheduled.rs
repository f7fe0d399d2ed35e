//! Changes of rows that are scheduled, which nearly all are: most of a batch is made at little effort, before the others.

use super::obstacle::Why;
use crate::Answer;
use crate::store::{Change, Verb};

/// Whether a change applies to scheduled rows only: it brings none to life, which another of the batch could mean.
pub(in crate::store) fn of_scheduled(change: &Change) -> bool {
    match change.verb {
        Verb::Reschedule { .. } | Verb::RunNow { .. } | Verb::Cancel => true,
        Verb::Dismiss | Verb::Redrive { .. } => false,
    }
}

/// Those of a batch that have no answer yet.
pub(in crate::store) fn left(changes: &[Change], made: &[Option<Answer>]) -> Vec<Change> {
    let left = changes.iter().zip(made).filter(|(_, made)| made.is_none());
    left.map(|(change, _)| change.clone()).collect()
}

/// The answers of a batch: those that there are, and between them those of the rest.
pub(in crate::store) fn with_rest(
    made: Vec<Option<Answer>>,
    rest: Vec<Result<Answer, Why>>,
) -> Vec<Result<Answer, Why>> {
    let mut rest = rest.into_iter();
    let answers = made
        .into_iter()
        .filter_map(|made| made.map(Ok).or_else(|| rest.next()));
    answers.collect()
}
