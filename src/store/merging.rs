//! New rows and changes of many callers, in few calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use super::{Change, NewRow, Stamped};
use crate::clock::Clock;
use crate::store::coalescer::{Coalescer, LARGE, Request, call_by_halves};
use crate::store::turns::CALLS;
use crate::{Answer, Error, Scheduled};

/// What came of each of a batch.
pub(super) type Answers<A> = Stamped<Vec<Result<A, Error>>>;

/// What came of each of a batch that waits for no stranger.
pub(super) type AnswersAtOnce<T, A> = Stamped<Vec<AtOnce<T, A>>>;

/// What was answered at once for something that a caller wants.
#[derive(Debug)]
pub(super) enum AtOnce<T, A> {
    Answered(Result<A, Error>),
    /// Not yet: others keep a row locked that it needs, or write it all the time. Nothing of it is done.
    Locked(T),
}

/// How a store serves callers, each batch in a call of its own.
#[async_trait]
pub(super) trait Batched: Send + Sync + 'static {
    /// Whose errors they are.
    fn name(&self) -> &'static str;

    /// How many calls of each sort are in flight while more callers wait.
    fn calls(&self) -> usize {
        CALLS
    }

    fn clock(&self) -> &Clock;

    /// As [`Store::insert`](super::Store::insert).
    async fn insert_alone(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error>;

    /// As [`Store::change`](super::Store::change).
    async fn change_alone(&self, changes: Vec<Change>, history: Duration) -> Result<Answers<Answer>, Error>;

    /// The same as `insert_alone`, but waits for no stranger. By default it does where nobody can keep a row locked.
    async fn insert_at_once(&self, rows: Vec<NewRow>) -> Result<AnswersAtOnce<NewRow, Scheduled>, Error> {
        Ok(answered(self.insert_alone(rows).await?))
    }

    /// The same as `change_alone`, but waits for no stranger. By default it does where nobody can keep a row locked.
    async fn change_at_once(
        &self,
        changes: Vec<Change>,
        history: Duration,
    ) -> Result<AnswersAtOnce<Change, Answer>, Error> {
        Ok(answered(self.change_alone(changes, history).await?))
    }
}

fn answered<T, A>(Stamped { now, found }: Answers<A>) -> AnswersAtOnce<T, A> {
    let found = found.into_iter().map(AtOnce::Answered).collect();
    Stamped { now, found }
}

/// Serves concurrent callers together, and gives each caller its own answers.
///
/// What callers want goes into one call with what others want where that is of use, and alone otherwise, or where somebody
/// has a row locked: so of callers who share a call only those wait who have to.
#[derive(Debug, Default)]
pub(super) struct Merging {
    inserts: Together<NewRow, Scheduled>,
    changes: Together<Change, Answer>,
}

impl Merging {
    /// As [`Store::insert`](super::Store::insert).
    pub(super) async fn insert<S: Batched>(
        &self,
        store: &Arc<S>,
        rows: Vec<NewRow>,
    ) -> Result<Answers<Scheduled>, Error> {
        let at_once = |store: Arc<S>, rows| async move { store.insert_at_once(rows).await };
        let alone = |rows| store.insert_alone(rows);
        ask(&self.inserts, store, rows, NewRow::bytes, at_once, alone).await
    }

    /// As [`Store::change`](super::Store::change).
    pub(super) async fn change<S: Batched>(
        &self,
        store: &Arc<S>,
        changes: Vec<Change>,
        history: Duration,
    ) -> Result<Answers<Answer>, Error> {
        let at_once =
            move |store: Arc<S>, changes| async move { store.change_at_once(changes, history).await };
        let alone = |changes| store.change_alone(changes, history);
        ask(&self.changes, store, changes, |_| 0, at_once, alone).await
    }
}

/// Calls of one sort that callers share. They begin with the first, which is made within a runtime.
type Together<T, A> = OnceLock<Coalescer<T, Shared<T, A>>>;

/// What one caller of such a call is answered.
type Shared<T, A> = Result<AnswersAtOnce<T, A>, Error>;

async fn ask<S, T, A, O, W>(
    together: &Together<T, A>,
    store: &Arc<S>,
    items: Vec<T>,
    bytes_of: fn(&T) -> usize,
    at_once: impl Fn(Arc<S>, Vec<T>) -> O + Copy + Send + Sync + 'static,
    alone: impl Fn(Vec<T>) -> W,
) -> Result<Answers<A>, Error>
where
    S: Batched,
    T: Clone + Send + Sync + 'static,
    A: Send + 'static,
    O: Future<Output = Shared<T, A>> + Send + 'static,
    W: Future<Output = Result<Answers<A>, Error>>,
{
    if items.is_empty() || items.len() >= LARGE {
        return alone(items).await;
    }
    let start = || {
        let store = Arc::clone(store);
        Coalescer::start(&store.clock().clone(), store.calls(), bytes_of, move |requests| {
            share(Arc::clone(&store), requests, at_once)
        })
    };
    let answered = together.get_or_init(start).ask(items).await;
    let Stamped { now, found } = answered.unwrap_or_else(|| Err(Error::unanswered(store.name())))?;
    let found = all(found, alone).await;
    Ok(Stamped { now, found })
}

/// All answers, in order, those of what is locked by `wait`.
async fn all<T, A, W>(found: Vec<AtOnce<T, A>>, wait: impl Fn(Vec<T>) -> W) -> Vec<Result<A, Error>>
where
    W: Future<Output = Result<Answers<A>, Error>>,
{
    let (mut answers, mut locked) = (Vec::with_capacity(found.len()), Vec::new());
    for answer in found {
        match answer {
            AtOnce::Answered(answer) => answers.push(Some(answer)),
            AtOnce::Locked(item) => {
                locked.push(item);
                answers.push(None);
            }
        }
    }
    let mut waited = Vec::new();
    if !locked.is_empty() {
        let count = locked.len();
        waited = match wait(locked).await {
            Ok(Stamped { found, .. }) => found,
            Err(error) => (0..count).map(|_| Err(error.once_more())).collect(),
        };
    }
    let mut waited = waited.into_iter();
    let each = answers
        .into_iter()
        .filter_map(|answer| answer.or_else(|| waited.next()));
    each.collect()
}

/// Makes one call for several callers, and answers each.
async fn share<S, T, A, O>(
    store: Arc<S>,
    requests: Vec<Request<T, Shared<T, A>>>,
    at_once: impl Fn(Arc<S>, Vec<T>) -> O,
) where
    S: Batched,
    T: Clone,
    O: Future<Output = Shared<T, A>>,
{
    let call = |items| async {
        let Stamped { now, found } = at_once(Arc::clone(&store), items).await?;
        Ok((now, found))
    };
    call_by_halves(requests, call, |now, found| Stamped { now, found }).await;
}

#[cfg(test)]
mod tests;
