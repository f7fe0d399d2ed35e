//! Wraps a store with delays, failures and counters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::Wake;
use delayline::clock::Clock;
use delayline::store::{
    Change, Claim, Event, Guarded, Keep, NewRow, Noted, Page, PollResult, Renewal, Stamped, Step, Store,
    Sweep, Target,
};
use delayline::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};
use tokio::sync::Notify;

/// A call of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Now,
    Insert,
    Change,
    Arrive,
    Hop,
    Ready,
    Sweep,
    Settle,
    Renew,
    Find,
    List,
    Count,
    Purge,
    Check,
}

/// Passes every call on, with the configured faults.
pub(crate) struct Meddled {
    store: Arc<dyn Store>,
    clock: Clock,
    inner: Mutex<Inner>,
    freed: Notify,
    said: Notify,
}

#[derive(Default)]
struct Inner {
    /// How many rows, wake-ups or claims each call was about or brought; of a list of tasks, how many bytes of payloads.
    calls: BTreeMap<Op, Vec<usize>>,
    failing: BTreeMap<Op, VecDeque<Failing>>,
    /// Calls that wait until they are freed, before their effect (false) or after it, and how many wait now.
    held: BTreeSet<(Op, bool)>,
    waiting: BTreeMap<Op, usize>,
    /// Rows that another transaction keeps: neither ended nor renewed.
    locked: BTreeSet<TaskId>,
    /// Rows whose next end or renewal is written, and said not to be known.
    unconfirmed: BTreeSet<TaskId>,
    /// How many more of each kind are claimed than was asked for.
    greed: usize,
    /// How long a call takes at the most before it has its effect, and after; in ms.
    latency: u64,
}

/// How a call fails.
struct Failing {
    after_effect: bool,
    error: fn() -> Error,
}

/// The error of a store that is away.
fn away() -> Error {
    Error::Store {
        store: "meddled",
        transient: true,
        source: "away".into(),
    }
}

impl std::fmt::Debug for Meddled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meddled")
    }
}

impl Meddled {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            inner: Mutex::default(),
            freed: Notify::new(),
            said: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Makes the next `times` calls fail before they have any effect, as by a store that is away.
    pub(crate) fn fail(&self, op: Op, times: usize) {
        self.fail_with(op, times, away);
    }

    /// Makes the next `times` calls fail with this error before they have any effect.
    pub(crate) fn fail_with(&self, op: Op, times: usize, error: fn() -> Error) {
        self.plan(op, times, false, error);
    }

    /// Makes the next `times` calls fail after they had their effect: the answer is lost.
    pub(crate) fn lose_answers(&self, op: Op, times: usize) {
        self.plan(op, times, true, away);
    }

    fn plan(&self, op: Op, times: usize, after_effect: bool, error: fn() -> Error) {
        let failing = (0..times).map(|_| Failing { after_effect, error });
        self.inner().failing.entry(op).or_default().extend(failing);
    }

    /// Locks a row by another transaction until it is unlocked.
    pub(crate) fn lock(&self, id: TaskId) {
        self.inner().locked.insert(id);
    }

    pub(crate) fn unlock(&self, id: TaskId) {
        self.inner().locked.remove(&id);
    }

    /// Makes it unknown what came of the next end or renewal of a row, which is written: its answer is lost in the store.
    pub(crate) fn leave_unconfirmed(&self, id: TaskId) {
        self.inner().unconfirmed.insert(id);
    }

    /// Returns the results of guarded writes of rows; locked ones are not passed on.
    async fn past_locked<W: Clone, A>(
        &self,
        writes: &[W],
        id_of: fn(&W) -> TaskId,
        call: impl FnOnce(Vec<W>) -> A,
    ) -> Result<Vec<Guarded>, Error>
    where
        A: Future<Output = Result<Vec<Guarded>, Error>>,
    {
        let locked = self.inner().locked.clone();
        let is_free = |write: &&W| !locked.contains(&id_of(write));
        let free = writes.iter().filter(is_free).cloned().collect();
        let mut came = call(free).await?.into_iter();
        let each = writes.iter().map(|write| match is_free(&write) {
            true => {
                let came = came.next().expect("an answer for each");
                let is_confirmed = !self.inner().unconfirmed.remove(&id_of(write));
                if is_confirmed { came } else { Guarded::Blocked }
            }
            false => Guarded::Blocked,
        });
        Ok(each.collect())
    }

    /// Ends all failures.
    pub(crate) fn mend(&self) {
        self.inner().failing.clear();
    }

    /// Makes calls wait, before they have any effect, until they are freed.
    pub(crate) fn hold(&self, op: Op) {
        self.inner().held.insert((op, false));
    }

    /// Makes calls wait, after they had their effect, until they are freed.
    pub(crate) fn hold_answers(&self, op: Op) {
        self.inner().held.insert((op, true));
    }

    /// Lets answers go on; calls still wait.
    pub(crate) fn free_answers(&self, op: Op) {
        self.inner().held.remove(&(op, true));
        self.freed.notify_waiters();
    }

    pub(crate) fn free(&self, op: Op) {
        self.inner().held.retain(|&(held, _)| held != op);
        self.freed.notify_waiters();
    }

    /// Counts the calls that wait to be freed.
    pub(crate) fn waiting(&self, op: Op) -> usize {
        self.inner().waiting.get(&op).copied().unwrap_or_default()
    }

    /// Makes each call from now on take up to `latency` before its effect, and as much after it.
    pub(crate) fn take(&self, latency: Duration) {
        self.inner().latency = u64::try_from(latency.as_millis()).unwrap();
    }

    /// Claims up to `more` tasks of each kind than it is asked for, which no store may.
    pub(crate) fn claim_too_many(&self, more: usize) {
        self.inner().greed = more;
    }

    fn greedy(&self, claim: &Claim) -> Claim {
        let greed = self.inner().greed;
        let mut claim = claim.clone();
        claim.room.values_mut().for_each(|room| *room += greed);
        claim
    }

    /// Returns for each call that had its effect how many rows, wake-ups or claims it was about or brought; of a list of
    /// tasks, how many bytes of payloads.
    pub(crate) fn calls(&self, op: Op) -> Vec<usize> {
        self.inner().calls.get(&op).cloned().unwrap_or_default()
    }

    /// Notifies as another process would: rows were scheduled that are due soon.
    pub(crate) fn say(&self) {
        self.said.notify_one();
    }

    async fn pause(&self) {
        let latency = self.inner().latency;
        if latency > 0 {
            let pause = self.clock.random_below(latency + 1);
            self.clock.sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn wait_if_held(&self, op: Op, after_effect: bool) {
        loop {
            let freed = self.freed.notified();
            if !self.inner().held.contains(&(op, after_effect)) {
                return;
            }
            *self.inner().waiting.entry(op).or_default() += 1;
            freed.await;
            *self.inner().waiting.entry(op).or_default() -= 1;
        }
    }

    async fn through<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, Error>>,
        count: impl Fn(&T) -> usize,
    ) -> Result<T, Error> {
        self.pause().await;
        self.wait_if_held(op, false).await;
        let failing = self.inner().failing.get_mut(&op).and_then(VecDeque::pop_front);
        if let Some(Failing {
            after_effect: false,
            error,
        }) = failing
        {
            return Err(error());
        }
        let answer = call.await?;
        self.inner().calls.entry(op).or_default().push(count(&answer));
        self.wait_if_held(op, true).await;
        self.pause().await;
        match failing {
            Some(Failing { error, .. }) => Err(error()),
            None => Ok(answer),
        }
    }
}

#[async_trait]
impl Store for Meddled {
    fn name(&self) -> &'static str {
        "meddled"
    }

    fn keep(&self, kinds: &Arc<BTreeMap<Kind, Keep>>) {
        self.store.keep(kinds);
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.through(Op::Now, self.store.now(), |_| 0).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.through(Op::Insert, self.store.insert(rows), |answer| answer.found.len())
            .await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.through(Op::Change, self.store.change(changes), |answer| {
            answer.found.len()
        })
        .await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.store.history(id).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error> {
        let claim = self.greedy(claim);
        let looking = self.store.arrive(wakes, &claim);
        self.through(Op::Arrive, looking, |polled| polled.found.claimed.len())
            .await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        let claim = self.greedy(claim);
        self.through(Op::Ready, self.store.ready(&claim), |ready| ready.found.len())
            .await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error> {
        let looking = self.store.sweep(claim, sweep);
        self.through(Op::Sweep, looking, |polled| polled.found.claimed.len())
            .await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        // The worker never sends both at once.
        let op = match steps.first().map(|step| &step.event) {
            Some(Event::End { .. }) => Op::Settle,
            Some(Event::Hop { .. }) | None => Op::Hop,
        };
        let advancing = self.past_locked(
            steps,
            |step| step.id,
            async |steps| self.store.advance(&steps).await,
        );
        self.through(op, advancing, Vec::len).await
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        let renewing = self.past_locked(
            claims,
            |claim| claim.id,
            async |claims| self.store.renew(&claims, lease).await,
        );
        self.through(Op::Renew, renewing, Vec::len).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.through(Op::Find, self.store.find(target), |_| 1).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        let bytes = |rows: &Vec<Task>| rows.iter().map(|row| row.payload.len()).sum();
        self.through(Op::List, self.store.list(page), bytes).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.through(Op::List, self.store.kinds(state, after, limit), Vec::len)
            .await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let counting = self.store.due_within(kind, state, spans, most);
        self.through(Op::Count, counting, |counted| counted.found.len())
            .await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        let purging = self.store.purge(limit);
        self.through(Op::Purge, purging, |&purged| usize::try_from(purged).unwrap())
            .await
    }

    async fn check(&self) -> Result<(), Error> {
        self.through(Op::Check, self.store.check(), |()| 0).await
    }

    async fn notified(&self) {
        self.said.notified().await;
    }
}
