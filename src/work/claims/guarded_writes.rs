//! Ends and renewals of many callers, in few calls of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::store::batched_calls::CALLS;
use crate::store::coalescer::{Coalescer, Request, items};
use crate::store::{Ending, Event, Guarded, Renewal, Step, Store};
use crate::{Error, TaskId};

/// Brings the guarded writes of concurrent callers to the store together, and gives each caller its own answer.
#[derive(Debug)]
pub(crate) struct GuardedWrites<T> {
    together: Coalescer<T, Answered>,
    store: &'static str,
}

type Answered = Result<Guarded, Error>;

impl GuardedWrites<Step> {
    /// Of the ends of claims.
    pub(super) fn of_ends(store: Arc<dyn Store>, clock: &Clock) -> Self {
        let name = store.name();
        let call = move |steps: Vec<Step>| {
            let store = Arc::clone(&store);
            async move { store.advance(&steps).await }
        };
        Self::start(name, clock, bytes_of, |step| step.id, call)
    }
}

impl GuardedWrites<(Renewal, Duration)> {
    /// Of renewals, each with its lease.
    pub(super) fn of_renewals(store: Arc<dyn Store>, clock: &Clock) -> Self {
        let name = store.name();
        let call = move |renewals: Vec<(Renewal, Duration)>| {
            let store = Arc::clone(&store);
            async move { renew(&*store, renewals).await }
        };
        Self::start(name, clock, |_| 0, |(renewal, _)| renewal.id, call)
    }
}

impl<T: Clone + Send + Sync + 'static> GuardedWrites<T> {
    fn start<C>(
        store: &'static str,
        clock: &Clock,
        bytes_of: fn(&T) -> usize,
        id_of: fn(&T) -> TaskId,
        call: impl Fn(Vec<T>) -> C + Clone + Send + Sync + 'static,
    ) -> Self
    where
        C: Future<Output = Result<Vec<Guarded>, Error>> + Send + 'static,
    {
        let write = move |requests| {
            let call = call.clone();
            async move { write(store, requests, id_of, call).await }
        };
        Self {
            together: Coalescer::start(clock, CALLS, bytes_of, write),
            store,
        }
    }

    /// Writes this, perhaps in one call with what others write.
    pub(super) async fn write(&self, item: T) -> Answered {
        let answered = self.together.ask(vec![item]).await;
        answered.unwrap_or_else(|| Err(Error::unanswered(self.store)))
    }
}

/// Writes what several callers want, and answers each.
async fn write<T, C>(
    store: &'static str,
    batch: Vec<Request<T, Answered>>,
    id_of: fn(&T) -> TaskId,
    call: impl Fn(Vec<T>) -> C,
) where
    T: Clone,
    C: Future<Output = Result<Vec<Guarded>, Error>>,
{
    let call = |items: Vec<T>| async {
        let count = items.len();
        let came = call(items).await?;
        match came.len() == count {
            true => Ok(came),
            false => Err(Error::miscounted(store, came.len(), count)),
        }
    };
    let mut left = batch;
    while !left.is_empty() {
        // A caller that repeats a call that is still on its way comes after it: a row is once in a call.
        let mut ids = BTreeSet::new();
        let (first, again) = left
            .into_iter()
            .partition(|request| request.items.iter().all(|item| ids.insert(id_of(item))));
        left = again;
        match call(items(&first)).await {
            // Each request has one item. A caller that does not wait any more has gone away.
            Ok(came) => first.into_iter().zip(came).for_each(|(request, came)| {
                let _ = request.answer.send(Ok(came));
            }),
            // A row that cannot be written is none of the others': this is of the store, and of no row.
            Err(error) => error.tell_all(first.into_iter().map(|request| request.answer).collect()),
        }
    }
}

/// Renews claims, those of one lease in one call.
async fn renew(store: &dyn Store, renewals: Vec<(Renewal, Duration)>) -> Result<Vec<Guarded>, Error> {
    let mut by_lease: BTreeMap<Duration, Vec<usize>> = BTreeMap::new();
    for (at, &(_, lease)) in renewals.iter().enumerate() {
        by_lease.entry(lease).or_default().push(at);
    }
    let mut came = vec![Guarded::Blocked; renewals.len()];
    for (lease, places) in by_lease {
        let claims: Vec<_> = places.iter().map(|&at| renewals[at].0).collect();
        let renewed = store.renew(&claims, lease).await?;
        for (at, renewed) in places.into_iter().zip(renewed) {
            came[at] = renewed;
        }
    }
    Ok(came)
}

fn bytes_of(step: &Step) -> usize {
    match &step.event {
        Event::End {
            ending:
                Ending::Retry { error, .. }
                | Ending::Dead { error, .. }
                | Ending::Snooze {
                    reason: Some(error), ..
                },
            ..
        } => error.len(),
        Event::End { .. } | Event::Hop { .. } => 0,
    }
}
