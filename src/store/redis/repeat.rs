//! What met a closed slot is done again, where it is to be done by now.

use super::closed::is_closed;
use crate::Error;
use crate::redis::Role;

/// How often something is repeated elsewhere that met a closed slot.
const TRIES: usize = 20;

/// Repeats what met a closed slot.
#[derive(Debug, Default)]
pub(super) struct Tries(usize);

impl Tries {
    /// Whether to repeat, by the layout that there is now, what ended with this error; else that error.
    pub(super) fn again(&mut self, error: Error) -> Result<(), Error> {
        if !is_closed(&error) {
            return Err(error);
        }
        self.0 += 1;
        if self.0 < TRIES {
            return Ok(());
        }
        // The servers have lost the layout; they still have the rows.
        let why =
            "slots are closed, and nothing is said of others; change their number to have them carried over";
        Err(Role::Store.error(true, why))
    }
}

/// What came of something in several slots: answers, and what is to be done elsewhere as its slot was closed.
pub(super) struct Done<A, L> {
    pub(super) answers: Vec<A>,
    pub(super) left: Vec<L>,
    pub(super) closed: Option<Error>,
}

impl<A, L> Done<A, L> {
    pub(super) fn new() -> Self {
        Self {
            answers: Vec::new(),
            left: Vec::new(),
            closed: None,
        }
    }

    /// Takes note of what failed: only if it met a closed slot there is something to do elsewhere.
    pub(super) fn closed(mut self, error: Error, left: impl IntoIterator<Item = L>) -> Result<Self, Error> {
        if !is_closed(&error) {
            return Err(error);
        }
        self.left.extend(left);
        self.closed = Some(error);
        Ok(self)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.answers.extend(other.answers);
        self.left.extend(other.left);
        self.closed = other.closed.or(self.closed.take());
    }
}
