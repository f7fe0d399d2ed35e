//! What callers ask for in one call, and the answers that there are.

use super::retry_window::RetryWindow;
use crate::store::Stamped;
use crate::store::merging::{Answers, AnswersAtOnce, AtOnce};
use crate::store::table::Outcome;
use crate::{Error, Timestamp};

/// What is known of one of a batch.
enum Status<A> {
    /// Nothing: it is to be decided, perhaps anew.
    Open,
    /// Another transaction keeps a row locked that it needs.
    Locked,
    Answered(Result<A, Error>),
}

/// A batch, each of which has an answer of its own.
pub(super) struct Batch<'c, Q, A> {
    pub(super) asked: Vec<Q>,
    statuses: Vec<Status<A>>,
    window: RetryWindow<'c>,
    /// Whether it waits for others; else what has no answer is read again once, if that need not wait, and given back.
    waits: bool,
    began: Option<Timestamp>,
    /// Whether rows were given to the table: then a call that fails may have written them, and is not made once more.
    pub(super) may_have_written: bool,
}

impl<'c, Q, A> Batch<'c, Q, A> {
    pub(super) fn new(asked: Vec<Q>, window: RetryWindow<'c>, waits: bool) -> Self {
        Self {
            statuses: asked.iter().map(|_| Status::Open).collect(),
            asked,
            window,
            waits,
            began: None,
            may_have_written: false,
        }
    }

    /// Keeps the time of the first look.
    pub(super) fn looked(&mut self, now: Timestamp) {
        self.began.get_or_insert(now);
    }

    /// The places of those that are to be decided.
    pub(super) fn open(&self) -> Vec<usize> {
        let is_open = |place: &usize| matches!(self.statuses[*place], Status::Open);
        (0..self.statuses.len()).filter(is_open).collect()
    }

    pub(super) fn answer(&mut self, place: usize, answer: Result<A, Error>) {
        self.statuses[place] = Status::Answered(answer);
    }

    /// Answers all that have no answer yet by an error, where rows may have been written: asked once more as a whole, the call
    /// would be answered by what it has done itself. Else fails as a whole.
    pub(super) fn fail(&mut self, error: Error) -> Result<(), Error> {
        if !self.may_have_written {
            return Err(error);
        }
        for status in &mut self.statuses {
            if !matches!(status, Status::Answered(_)) {
                *status = Status::Answered(Err(error.once_more()));
            }
        }
        Ok(())
    }

    /// Leaves one without an answer, as its row was not written.
    pub(super) fn miss(&mut self, place: usize, why: &Outcome) {
        self.statuses[place] = match why {
            Outcome::Written | Outcome::Lost => Status::Open,
            Outcome::Locked => Status::Locked,
            Outcome::Refused(error) => Status::Answered(Err(error.once_more())),
        };
    }

    /// After a turn in which not all were answered: whether there is to be another, once it has paused.
    pub(super) async fn tries_again(&mut self) -> bool {
        let mut is_locked = false;
        for status in self.statuses.iter_mut().filter(|_| self.waits) {
            if matches!(status, Status::Locked) {
                (*status, is_locked) = (Status::Open, true);
            }
        }
        let is_open = self.statuses.iter().any(|status| matches!(status, Status::Open));
        is_open
            && match self.waits {
                true => self.window.pause(is_locked).await,
                false => self.window.takes_free_turn(),
            }
    }

    /// All answers: an error for what was not to be had.
    pub(super) fn answered(self, store: &'static str) -> Answers<A> {
        let now = self.began.unwrap_or_default();
        let answer = |status| match status {
            Status::Answered(answer) => answer,
            Status::Open | Status::Locked => Err(not_to_be_had(store)),
        };
        let found = self.statuses.into_iter().map(answer).collect();
        Stamped { now, found }
    }

    /// The same, but gives back what was not to be had at once.
    pub(super) fn answered_at_once(self) -> AnswersAtOnce<Q, A> {
        let now = self.began.unwrap_or_default();
        let answer = |(asked, status)| match status {
            Status::Answered(answer) => AtOnce::Answered(answer),
            Status::Locked | Status::Open => AtOnce::Unanswered(asked),
        };
        let found = self.asked.into_iter().zip(self.statuses).map(answer).collect();
        Stamped { now, found }
    }
}

/// The error of a row that others keep, which passes.
pub(super) fn not_to_be_had(store: &'static str) -> Error {
    Error::Store {
        store,
        transient: true,
        source: "another transaction has the row locked, or others write it again and again".into(),
    }
}
