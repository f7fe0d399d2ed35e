//! Puts what concurrent callers ask for into few calls, and gives each caller its own answers.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

use super::Stamped;
use crate::Error;
use crate::clock::Clock;
use crate::store::coalescer::{Coalescer, LARGE, Request, call_by_halves};

/// What came of each of a batch.
pub(super) type Answers<A> = Stamped<Vec<Result<A, Error>>>;

/// What came of each of a batch that waits for no other transaction.
pub(super) type AnswersAtOnce<Q, A> = Stamped<Vec<AtOnce<Q, A>>>;

/// What was answered at once for something that a caller wants.
#[derive(Debug)]
pub(super) enum AtOnce<Q, A> {
    Answered(Result<A, Error>),
    /// Not at once: others keep a row locked that it needs, or were quicker with it. Nothing of it is done.
    Unanswered(Q),
}

/// Answers a batch in a call of its own.
#[async_trait]
pub(super) trait AnswerBatch<Q>: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// How many bytes one of these adds to a call.
    fn bytes_of(asked: &Q) -> usize;

    /// Answers, and waits a while for rows that others have locked.
    async fn answer_waiting(&self, asked: Vec<Q>) -> Result<Answers<Self::Answer>, Error>;

    /// Answers what can be answered without waiting for another transaction.
    async fn answer_at_once(&self, asked: Vec<Q>) -> Result<AnswersAtOnce<Q, Self::Answer>, Error>;
}

/// Serves concurrent callers together, and gives each caller its own answers.
///
/// What callers want goes into one call with what others want where that is of use, and alone otherwise, or where another
/// transaction has a row locked: so of callers that share a call only those wait that have to.
#[derive(Debug)]
pub(super) struct Merging<Q, A> {
    /// Whose errors they are.
    store: &'static str,
    /// How many calls are in flight while more callers wait; none where each has a call of its own.
    calls: Option<usize>,
    clock: Clock,
    /// Begins with the first call, which is made within a runtime.
    together: OnceLock<Coalescer<Q, Shared<Q, A>>>,
}

/// What one caller of a shared call is answered.
type Shared<Q, A> = Result<AnswersAtOnce<Q, A>, Error>;

impl<Q: Clone + Send + Sync + 'static, A: Send + 'static> Merging<Q, A> {
    pub(super) fn new(store: &'static str, calls: Option<usize>, clock: Clock) -> Self {
        Self {
            store,
            calls,
            clock,
            together: OnceLock::new(),
        }
    }

    /// Has `answerer` answer a caller.
    pub(super) async fn ask<D>(&self, answerer: &Arc<D>, asked: Vec<Q>) -> Result<Answers<A>, Error>
    where
        D: AnswerBatch<Q, Answer = A>,
    {
        let calls = self.calls.filter(|_| (1..LARGE).contains(&asked.len()));
        let Some(calls) = calls else {
            return answerer.answer_waiting(asked).await;
        };
        let start = || {
            let answerer = Arc::clone(answerer);
            Coalescer::start(&self.clock, calls, D::bytes_of, move |requests| {
                share(Arc::clone(&answerer), requests)
            })
        };
        let answered = self.together.get_or_init(start).ask(asked).await;
        let Stamped { now, found } = answered.unwrap_or_else(|| Err(Error::unanswered(self.store)))?;
        let found = all(&**answerer, found).await;
        Ok(Stamped { now, found })
    }
}

/// All answers, in order, those of what is locked when it is not any more.
async fn all<Q, A>(
    answerer: &impl AnswerBatch<Q, Answer = A>,
    found: Vec<AtOnce<Q, A>>,
) -> Vec<Result<A, Error>> {
    let (mut answers, mut locked) = (Vec::with_capacity(found.len()), Vec::new());
    for answer in found {
        match answer {
            AtOnce::Answered(answer) => answers.push(Some(answer)),
            AtOnce::Unanswered(item) => {
                locked.push(item);
                answers.push(None);
            }
        }
    }
    let mut waited = Vec::new();
    if !locked.is_empty() {
        let count = locked.len();
        waited = match answerer.answer_waiting(locked).await {
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
async fn share<Q: Clone, A>(
    answerer: Arc<impl AnswerBatch<Q, Answer = A>>,
    requests: Vec<Request<Q, Shared<Q, A>>>,
) {
    let call = |items| async {
        let Stamped { now, found } = answerer.answer_at_once(items).await?;
        Ok((now, found))
    };
    call_by_halves(requests, call, |now, found| Stamped { now, found }).await;
}

#[cfg(test)]
mod tests;
