//! Tests a store that is away for longer than any timeout.

use std::collections::BTreeMap;
use std::sync::Mutex;

use delayline::clock::Clock;
use delayline::store::MemoryStore;
use delayline::{Context, Failure, NewTask, Outcome, Scheduler, Worker};

use super::meddled::{Meddled, Op};
use super::*;

const TASKS: u64 = 300;
const EARLY: u64 = 20;
/// Several times as long as a batch is held, and as a broker waits before it sends again what was sent back to it.
const OUTAGE: Duration = Duration::from_secs(60);
/// More calls than are made meanwhile.
const ALL: usize = 1_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_minute_without_its_store_a_worker_runs_every_task_once_and_sent_nothing_back() {
    let place = Place::new();
    let store = Arc::new(Meddled::new(Arc::new(MemoryStore::new()), Clock::system()));
    let backend = place.connect().await;
    let scheduler = Scheduler::builder(store.clone())
        .carrier(backend.clone())
        .build()
        .unwrap();
    let runs = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let seen = runs.clone();
    let handler = move |number: u64, _: Context| {
        let seen = seen.clone();
        async move {
            *seen.lock().unwrap().entry(number).or_default() += 1;
            Ok::<_, Failure>(Outcome::Done)
        }
    };
    let worker = tokio::spawn(Worker::new(&scheduler).handle("count", handler).run());
    for number in 0..TASKS {
        // The first ones are due before the outage, the others during it and after, all through the levels.
        let delay = match number {
            ..EARLY => TWO,
            _ => Duration::from_secs(15 + number % 70),
        };
        scheduler
            .schedule(NewTask::new("count", &number).after(delay))
            .await
            .unwrap();
    }
    let ran = || runs.lock().unwrap().len() as u64;
    let settled = async |count| {
        while scheduler.stats().done < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // A handler whose end cannot be written would run again, and rightly so: none is left when the store goes.
    timeout(SAFETY, settled(EARLY)).await.expect("the first ones run");
    assert_eq!(ran(), EARLY);

    for op in [
        Op::Now,
        Op::Arrive,
        Op::Hop,
        Op::Ready,
        Op::Sweep,
        Op::Settle,
        Op::Renew,
    ] {
        store.fail(op, ALL);
    }
    tokio::time::sleep(OUTAGE).await;
    assert_eq!(ran(), EARLY, "nothing runs without a store");
    assert!(!worker.is_finished(), "a worker waits for its store");
    store.mend();
    if timeout(2 * SAFETY, settled(TASKS)).await.is_err() {
        panic!("{} of {TASKS} ran: {:?}", ran(), scheduler.stats());
    }
    let twice: Vec<_> = runs
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, count)| **count > 1)
        .map(|(n, _)| *n)
        .collect();
    assert!(twice.is_empty(), "{twice:?} ran more than once");
    assert!(scheduler.stats().received > 0);
    worker.abort();
    backend.close().await.unwrap();
    place.assert_nothing_sent_back().await;
}
