//! What callers ask for in one call, and the answers that there are.

use super::patience::Patience;
use crate::store::Stamped;
use crate::store::merging::{Answers, AnswersAtOnce, AtOnce};
use crate::store::table::Outcome;
use crate::{Error, Timestamp};

/// What is known of one of a batch.
enum Place<A> {
    /// Nothing: it is to be decided, perhaps anew.
    Open,
    /// Another transaction keeps a row locked that it needs.
    Locked,
    Answered(Result<A, Error>),
}

/// A batch, each of which has an answer of its own.
pub(super) struct Batch<'c, Q, A> {
    pub(super) asked: Vec<Q>,
    places: Vec<Place<A>>,
    patience: Patience<'c>,
    /// Whether it waits for others; else it is read again once, and given back.
    waits: bool,
    began: Option<Timestamp>,
    /// Whether rows were given to the table to be written: of those no answer is known if that fails.
    pub(super) may_have_written: bool,
}

impl<'c, Q, A> Batch<'c, Q, A> {
    pub(super) fn new(asked: Vec<Q>, patience: Patience<'c>, waits: bool) -> Self {
        Self {
            places: asked.iter().map(|_| Place::Open).collect(),
            asked,
            patience,
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
        let is_open = |place: &usize| matches!(self.places[*place], Place::Open);
        (0..self.places.len()).filter(is_open).collect()
    }

    pub(super) fn answer(&mut self, place: usize, answer: Result<A, Error>) {
        self.places[place] = Place::Answered(answer);
    }

    /// Answers all that have no answer yet by an error.
    pub(super) fn fail(&mut self, error: &Error) {
        for place in &mut self.places {
            if !matches!(place, Place::Answered(_)) {
                *place = Place::Answered(Err(error.once_more()));
            }
        }
    }

    /// Leaves one without an answer, as its row was not written.
    pub(super) fn miss(&mut self, place: usize, why: &Outcome) {
        self.places[place] = match why {
            Outcome::Written | Outcome::Lost => Place::Open,
            Outcome::Locked => Place::Locked,
            Outcome::Refused(error) => Place::Answered(Err(error.once_more())),
        };
    }

    /// After a turn in which not all were answered: whether there is to be another, once it has paused.
    pub(super) async fn goes_on(&mut self) -> bool {
        let mut is_locked = false;
        for place in self.places.iter_mut().filter(|_| self.waits) {
            if matches!(place, Place::Locked) {
                (*place, is_locked) = (Place::Open, true);
            }
        }
        let is_open = self.places.iter().any(|place| matches!(place, Place::Open));
        let is_first = self.patience.is_new();
        is_open && (self.waits || is_first) && self.patience.pause(is_locked).await
    }

    /// All answers: an error for what was not to be had.
    pub(super) fn answered(self, store: &'static str) -> Answers<A> {
        let now = self.began.unwrap_or_default();
        let answer = |place| match place {
            Place::Answered(answer) => answer,
            Place::Open | Place::Locked => Err(not_to_be_had(store)),
        };
        let found = self.places.into_iter().map(answer).collect();
        Stamped { now, found }
    }

    /// The same, but gives back what was not to be had at once.
    pub(super) fn answered_at_once(self) -> AnswersAtOnce<Q, A> {
        let now = self.began.unwrap_or_default();
        let answer = |(asked, place)| match place {
            Place::Answered(answer) => AtOnce::Answered(answer),
            Place::Locked | Place::Open => AtOnce::Locked(asked),
        };
        let found = self.asked.into_iter().zip(self.places).map(answer).collect();
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
