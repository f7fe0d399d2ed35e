//! PostgreSQL tells the workers of other processes what is due soon.

use std::time::Duration;

use delayline::store::PostgresStore;
use delayline::{NewTask, Scheduler, TaskId};
use sqlx::PgPool;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::service::{OnPostgres, Service};
use crate::verbs::{KIND, work};

/// So that a test ends some time if nobody is told; it says nothing about how long it should take.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// The scheduler and the store of one process.
async fn process(url: &str) -> (Scheduler, PostgresStore) {
    let builder = PostgresStore::builder(url.parse().unwrap()).notify();
    let store = builder.connect().await.unwrap();
    (Scheduler::new(store.clone()), store)
}

async fn next(runs: &mut UnboundedReceiver<TaskId>) -> TaskId {
    let run = tokio::time::timeout(HANGS_AFTER, runs.recv()).await;
    run.expect("nobody was told").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_does_not_sweep_is_told_of_what_another_process_schedules() {
    let service = OnPostgres::new().await;
    let ((here, _), (there, store)) = (process(service.url()).await, process(service.url()).await);
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
