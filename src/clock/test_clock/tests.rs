use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn start() -> Timestamp {
    Timestamp::from_millis(1_000_000)
}

#[tokio::test]
async fn it_stands_still_and_sleepers_wake_in_order_when_it_is_turned() {
    let test_clock = TestClock::starting_at(start());
    let clock = test_clock.clock();
    let woken = Arc::<Mutex<Vec<u64>>>::default();
    let _sleepers: Vec<_> = [3, 1, 2]
        .map(|seconds| {
            let (own, woken) = (clock.clone(), Arc::clone(&woken));
            clock.spawn(async move {
                own.sleep(seconds * SECOND).await;
                woken.lock().unwrap().push(u64::from(seconds));
            })
        })
        .into();
    tokio::time::sleep(Duration::from_millis(5)).await;
    test_clock.settled().await;
    assert_eq!(
        (clock.now(), clock.instant()),
        (start(), test_clock.turned.origin)
    );
    test_clock.turn_to(start().after(2 * SECOND));
    test_clock.settled().await;
    assert_eq!(*woken.lock().unwrap(), [1, 2]);
    // Never back.
    test_clock.turn_to(start());
    assert_eq!(clock.now(), start().after(2 * SECOND));
    let no_longer = clock.timeout(SECOND, std::future::pending::<()>());
    tokio::pin!(no_longer);
    test_clock.turn_to(start().after(10 * SECOND));
    test_clock.settled().await;
    assert_eq!(*woken.lock().unwrap(), [1, 2, 3]);
    assert!(test_clock.turned.state().sleepers.is_empty());
}

#[tokio::test]
async fn what_is_handed_from_part_to_part_is_waited_for_to_its_end() {
    let test_clock = TestClock::starting_at(start());
    let clock = test_clock.clock();
    let (passed, begin) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (own, count, told) = (clock.clone(), Arc::clone(&passed), Arc::clone(&begin));
    // Each starts the next one, and hears of its end.
    let _passing = clock.spawn(async move {
        told.notified().await;
        for _ in 0..1_000 {
            let (mut set, count) = (JoinSet::new(), Arc::clone(&count));
            own.spawn_in(&mut set, async move {
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::Relaxed);
            });
            set.join_next().await;
        }
    });
    test_clock.settled().await;
    assert_eq!(passed.load(Ordering::Relaxed), 0);
    begin.notify_one();
    test_clock.settled().await;
    assert_eq!(passed.load(Ordering::Relaxed), 1_000);
}

#[tokio::test]
async fn a_handler_and_a_pause_are_waited_for_in_real_time() {
    let test_clock = TestClock::starting_at(start());
    let clock = test_clock.clock();
    let done = Arc::new(AtomicUsize::new(0));
    let mut handlers = JoinSet::new();
    let count = Arc::clone(&done);
    clock.spawn_handler(&mut handlers, async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        count.fetch_add(1, Ordering::Relaxed);
    });
    test_clock.settled().await;
    assert_eq!(done.load(Ordering::Relaxed), 1);
    let (own, count) = (clock.clone(), Arc::clone(&done));
    let _pausing = clock.spawn(async move {
        own.pause(Duration::from_millis(30)).await;
        count.fetch_add(1, Ordering::Relaxed);
    });
    test_clock.settled().await;
    assert_eq!((done.load(Ordering::Relaxed), clock.now()), (2, start()));
}

#[tokio::test]
async fn what_is_stopped_is_not_waited_for() {
    let test_clock = TestClock::starting_at(start());
    let clock = test_clock.clock();
    let mut handlers = JoinSet::new();
    clock.spawn_handler(&mut handlers, std::future::pending::<()>());
    let never = test_clock.watch(std::future::pending::<()>());
    assert_eq!(test_clock.turned.state().busy, 3);
    drop(never);
    handlers.shutdown().await;
    test_clock.settled().await;
}

#[test]
#[should_panic(expected = "of one thread")]
fn it_is_refused_where_threads_would_hide_what_is_under_way() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async { TestClock::starting_at(start()) });
}

/// SQLite answers from a thread of its own, which the clock does not see.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn what_follows_over_a_file_has_settled_as_well() {
    use crate::store::SqliteStore;
    use crate::{Context, NewTask, Outcome, Scheduler, State, Worker};

    let test_clock = TestClock::starting_at(start());
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::builder(folder.path().join("tasks.db")).clock(test_clock.clock());
    let store = std::sync::Arc::new(store.open().await.unwrap());
    let scheduler = Scheduler::builder(store)
        .clock(test_clock.clock())
        .build()
        .unwrap();
    let worker = Worker::new(&scheduler)
        .sweep_every(Duration::from_millis(1))
        .handle("k", async |_: u32, _: Context| Ok(Outcome::Done));
    let running = tokio::spawn(test_clock.watch(worker.run()));
    for number in 0..20_u32 {
        let task = NewTask::new("k", &number).after(Duration::from_secs(900));
        let task = scheduler.schedule(task).await.unwrap().task().clone();
        test_clock.settled().await;
        test_clock.turn_to(task.due_at);
        test_clock.settled().await;
        let task = scheduler.find(task.id).await.unwrap().unwrap();
        assert_eq!(task.state, State::Done, "{number}");
    }
    running.abort();
}
