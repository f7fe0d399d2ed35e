//! Batches with rows that the file refuses.

use sqlx::Error as SqlError;

use super::connections::{failed, is_of_a_row};
use crate::store::Stamped;
use crate::store::sql::{Why, parts};
use crate::{Clock, Error, Timestamp};

/// A batch, each row of which gets an answer: where one is refused, such as by a trigger of the application's, the
/// others are written apart from it.
pub(super) struct Apart<T, A> {
    /// What is still to be written, the last first.
    left: Vec<Vec<T>>,
    is_split: bool,
    now: Timestamp,
    found: Vec<Result<A, Error>>,
}

impl<T, A> Apart<T, A> {
    pub(super) fn new(batch: Vec<T>, clock: &Clock) -> Self {
        Self {
            found: Vec::with_capacity(batch.len()),
            left: vec![batch],
            is_split: false,
            now: clock.now(),
        }
    }

    /// What to write next, in one transaction.
    pub(super) fn next(&mut self) -> Option<Vec<T>> {
        self.left.pop()
    }

    /// Takes what came of it. An error is one of the whole call: nothing of it was written.
    pub(super) fn came(
        &mut self,
        part: Vec<T>,
        came: Result<Stamped<Vec<Result<A, Why>>>, SqlError>,
    ) -> Result<(), SqlError> {
        match came {
            Ok(Stamped { now, found }) => {
                self.now = now;
                let told = |answer: Result<A, Why>| answer.map_err(|why| why.error(super::NAME));
                self.found.extend(found.into_iter().map(told));
            }
            Err(error) if is_of_a_row(&error) && part.len() > 1 => {
                self.is_split = true;
                self.left.extend(parts(part).into_iter().rev());
            }
            Err(error) if is_of_a_row(&error) || self.is_split => {
                let error = failed(error);
                self.found.extend(part.iter().map(|_| Err(error.once_more())));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The answers in the order of the batch, once nothing is left.
    pub(super) fn stamped(self) -> Stamped<Vec<Result<A, Error>>> {
        Stamped {
            now: self.now,
            found: self.found,
        }
    }
}
