use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::{Arrival, Backend, Delays, Departure, Reach, SendError, Wake};
use delayline::store::MemoryStore;
use delayline::{Error, NewTask, Scheduler};

use super::resend;

/// Takes wake-ups, but of each batch only the first half for so many times.
#[derive(Debug, Default)]
struct Reluctant {
    refusals: Mutex<usize>,
    is_permanent: bool,
    taken: Mutex<BTreeMap<Wake, Duration>>,
}

#[async_trait]
impl Backend for Reluctant {
    fn name(&self) -> &'static str {
        "reluctant"
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Any { max: Duration::MAX },
            usual_lateness: Duration::ZERO,
        }
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let mut refusals = self.refusals.lock().unwrap();
        let takes = if *refusals > 0 {
            batch.len() / 2
        } else {
            batch.len()
        };
        let taken = batch[..takes]
            .iter()
            .map(|departure| (departure.wake.clone(), departure.delay));
        self.taken.lock().unwrap().extend(taken);
        if *refusals == 0 {
            return Ok(());
        }
        *refusals -= 1;
        Err(SendError {
            failed: (takes..batch.len()).collect(),
            cause: Error::Backend {
                backend: "reluctant",
                transient: !self.is_permanent,
                source: "not now".into(),
            },
        })
    }

    async fn remove(&self, _: &[Wake]) -> Result<(), Error> {
        Ok(())
    }

    async fn receive(&self, _: usize) -> Result<Vec<Arrival>, Error> {
        std::future::pending().await
    }

    async fn acknowledge(&self, _: Vec<Arrival>) {}

    async fn health(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn store_of(tasks: usize) -> MemoryStore {
    let store = MemoryStore::new();
    let scheduler = Scheduler::new(store.clone());
    let tasks = (0..tasks).map(|n| NewTask::new(["a", "b"][n % 2], &n).after(HOUR));
    scheduler.schedule_all(tasks).await.unwrap();
    store
}

#[tokio::test]
async fn every_scheduled_row_gets_a_wake_up_for_when_it_is_due() {
    let store = store_of(1_201).await;
    let scheduler = Scheduler::new(store.clone());
    let other = NewTask::new("a", "gone").key("gone").after(HOUR);
    scheduler.schedule(other).await.unwrap();
    let _ = scheduler.cancel(("a", "gone")).await.unwrap();
    // What says so is a row that is never due.
    scheduler.pause("a", None, "").await.unwrap();

    let backend = Reluctant::default();
    let mut heard = Vec::new();
    let done = resend(&store, &backend, |so_far| heard.push(so_far.clone()))
        .await
        .unwrap();
    assert_eq!((done.sent, done.kinds, done.of_kinds), (1_201, 2, 2));
    assert_eq!(heard.last(), Some(&done));
    assert!(heard.is_sorted_by_key(|so_far| so_far.sent));
    let taken = backend.taken.lock().unwrap();
    assert_eq!(taken.len(), 1_201);
    for (wake, delay) in taken.iter() {
        assert_eq!(wake.version, 1);
        assert!(
            *delay <= HOUR && *delay > HOUR - Duration::from_secs(60),
            "{delay:?}"
        );
    }
}

#[tokio::test]
async fn what_a_backend_does_not_take_at_first_is_sent_again() {
    let store = store_of(300).await;
    let backend = Reluctant {
        refusals: Mutex::new(2),
        ..Reluctant::default()
    };
    let done = resend(&store, &backend, |_| ()).await.unwrap();
    assert_eq!(done.sent, 300);
    assert_eq!(backend.taken.lock().unwrap().len(), 300);
}

#[tokio::test]
async fn a_backend_that_never_takes_them_is_an_error() {
    for is_permanent in [false, true] {
        let store = store_of(4).await;
        let backend = Reluctant {
            refusals: Mutex::new(usize::MAX),
            is_permanent,
            ..Reluctant::default()
        };
        let error = resend(&store, &backend, |_| ()).await.unwrap_err();
        assert_eq!(error.is_transient(), !is_permanent);
    }
}
