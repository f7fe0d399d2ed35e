//! PostgreSQL tells the workers of other processes what is due soon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::Wake;
use delayline::store::{
    Change, Claim, Guarded, Keep, NewRow, Noted, Page, PollResult, PostgresStore, Renewal, Stamped, Step,
    Store, Sweep, Target,
};
use delayline::{Answer, Error, Kind, NewTask, Scheduled, Scheduler, State, Task, TaskId, Timestamp};
use sqlx::PgPool;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::service::{OnPostgres, Service};
use crate::verbs::{KIND, work};

/// So that a test ends some time if no worker is told; it says nothing about how long it should take.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// One process's store.
async fn process(url: &str) -> PostgresStore {
    let builder = PostgresStore::builder(url.parse().unwrap()).notify();
    builder.connect().await.unwrap()
}

/// Looks for what is due only when it was told to: no timer finds anything.
#[derive(Debug)]
struct OnlyTold {
    store: PostgresStore,
    is_told: AtomicBool,
}

#[async_trait]
impl Store for OnlyTold {
    async fn notified(&self) {
        self.store.notified().await;
        self.is_told.store(true, Ordering::Relaxed);
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error> {
        if self.is_told.swap(false, Ordering::Relaxed) {
            return self.store.sweep(claim, sweep).await;
        }
        let now = self.store.now().await?;
        let found = PollResult::default();
        Ok(Stamped { now, found })
    }

    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn keep(&self, kinds: &Arc<BTreeMap<Kind, Keep>>) {
        self.store.keep(kinds);
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.store.now().await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.store.history(id).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.store.insert(rows).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.store.change(changes).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error> {
        self.store.arrive(wakes, claim).await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        self.store.ready(claim).await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        self.store.advance(steps).await
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        self.store.renew(claims, lease).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.store.find(target).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.store.list(page).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.store.kinds(state, after, limit).await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        self.store.due_within(kind, state, spans, most).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.store.purge(limit).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.store.check().await
    }
}

async fn next(runs: &mut UnboundedReceiver<TaskId>) -> TaskId {
    let run = tokio::time::timeout(HANGS_AFTER, runs.recv()).await;
    run.expect("no worker was told").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_told_of_what_another_process_schedules() {
    let service = OnPostgres::new().await;
    let here = Scheduler::new(OnlyTold {
        store: process(service.url()).await,
        is_told: AtomicBool::new(false),
    });
    let store = process(service.url()).await;
    let there = Scheduler::new(store.clone());
    let mut work = work(&here, Duration::from_secs(3_600));
    let task = || NewTask::new(KIND, "post");
    let soon = Duration::from_millis(300);
    // Once it has run this, it has claimed what was due when it started; once it has run the next, it listens.
    let id = here.schedule(task()).await.unwrap().task().id;
    assert_eq!(next(&mut work.runs).await, id);
    let id = there.schedule(task()).await.unwrap().task().id;
    assert_eq!(next(&mut work.runs).await, id);

    let id = there.schedule(task().after(soon)).await.unwrap().task().id;
    assert_eq!(next(&mut work.runs).await, id);

    let pool = PgPool::connect(service.url()).await.unwrap();
    for delay in [soon, Duration::ZERO] {
        let mut tx = pool.begin().await.unwrap();
        let receipt = there
            .schedule_in(store.join(&mut tx), task().after(delay))
            .await
            .unwrap();
        let id = receipt.answer().task().id;
        drop(receipt);
        tx.commit().await.unwrap();
        assert_eq!(next(&mut work.runs).await, id);
    }
}
