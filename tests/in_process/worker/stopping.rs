//! How a worker ends: told to, out of patience, or in the middle of everything.

use delayline::{Error, NewTask, Outcome, Policy, State};

use crate::support::{KIND, Op, Running, World, at, ms, secs};
use crate::worker::leases::{Ended, schedule, working};
use crate::worker::outcomes::worker_that;

/// One handler at a time, and claims in advance.
fn one_at_a_time() -> Policy {
    Policy::new().concurrency(1).prefetch(10)
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_takes_nothing_new_waits_for_what_runs_and_gives_the_rest_back() {
    let world = World::new();
    let ended = Ended::default();
    let mut worker = Running::start(worker_that(&world, one_at_a_time(), working(&world, &ended)));
    let running = schedule(&world, 10).await;
    let queued = [schedule(&world, 1).await, schedule(&world, 1).await];
    world.pass(secs(2)).await;
    assert_eq!(world.count(State::Running).await, 3);
    worker.tell();
    world.pass(ms(1)).await;
    for row in &queued {
        let row = world.row(row.id).await;
        assert_eq!(
            (row.state, row.attempt),
            (State::Scheduled, 0),
            "as if it had not been claimed"
        );
        assert_eq!(
            (row.due_at, row.wake_at),
            (at(0), Some(at(2_000))),
            "to be looked at at once"
        );
    }
    let new = schedule(&world, 1).await;
    world.pass(secs(7)).await;
    assert!(!worker.has_ended(), "a handler is running");
    assert_eq!(world.row(new.id).await.version, 1, "nothing new is touched");
    worker.ended().await.unwrap();
    assert_eq!(world.now(), 10_000, "not a moment longer");
    assert_eq!(ended.times(), [10_000]);
    assert_eq!(world.row(running.id).await.state, State::Done);
    assert_eq!(world.runs.count(), 1);
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.released, stats.lost_claims), (1, 2, 0));

    let _next = Running::start(worker_that(&world, one_at_a_time(), working(&world, &ended)));
    world.settle().await;
    assert_eq!(world.runs.count(), 4);
    assert!(world.runs.all().iter().all(|run| run.task.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_while_a_stop_waits_for_what_is_under_way() {
    let world = World::new();
    let ended = Ended::default();
    let mut worker = Running::start(worker_that(&world, one_at_a_time(), working(&world, &ended)));
    schedule(&world, 3).await;
    let queued = schedule(&world, 1).await;
    world.pass(secs(1)).await;
    // A sweep is in the store: what it claims has to be given back too.
    world.store.hold(Op::Sweep);
    world.pass(secs(1)).await;
    worker.tell();
    world.pass(secs(5)).await;
    assert_eq!(world.runs.count(), 1);
    world.store.free(Op::Sweep);
    worker.ended().await.unwrap();
    assert_eq!(world.runs.count(), 1);
    let row = world.row(queued.id).await;
    assert_eq!((row.state, row.attempt), (State::Scheduled, 0));
}

#[tokio::test(start_paused = true)]
async fn leases_are_kept_and_failures_settled_while_a_worker_stops() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, one_at_a_time(), working(&world, &ended));
    let mut worker = Running::start(worker.lease(secs(3)));
    let _another = Running::start(
        delayline::Worker::new(&world.another_scheduler())
            .handle(KIND, world.runs.handler(&world.store_clock)),
    );
    world.pass(ms(1)).await;
    world.store.fail(Op::Settle, 0);
    schedule(&world, 20).await;
    world.pass(ms(1)).await;
    worker.tell();
    world.pass(secs(19)).await;
    world.store.fail(Op::Settle, 5);
    worker.ended().await.unwrap();
    assert_eq!(world.count(State::Done).await, 1);
    assert_eq!(world.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_end_in_time_is_stopped_and_given_back() {
    for timeout in [secs(5), secs(0)] {
        let world = World::new();
        let ended = Ended::default();
        let worker = worker_that(&world, one_at_a_time(), working(&world, &ended));
        let worker = Running::start(worker.stop_timeout(timeout));
        let running = schedule(&world, 1_000_000).await;
        let queued = schedule(&world, 1).await;
        world.pass(secs(2)).await;
        worker.stop().await.unwrap();
        let stopped = 2_000 + i64::try_from(timeout.as_millis()).unwrap();
        assert_eq!(world.now(), stopped);
        assert_eq!(ended.times(), [stopped]);
        for id in [running.id, queued.id] {
            let row = world.row(id).await;
            assert_eq!((row.state, row.attempt), (State::Scheduled, 0), "{timeout:?}");
        }
        assert_eq!(world.scheduler.stats().released, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_also_when_the_store_does_not_answer() {
    for op in [Op::Settle, Op::Arrive, Op::Sweep, Op::Ready, Op::Renew] {
        let world = World::new();
        let ended = Ended::default();
        let worker = worker_that(&world, one_at_a_time(), working(&world, &ended));
        let worker = Running::start(worker.stop_timeout(secs(5)));
        world.pass(ms(1)).await;
        schedule(&world, 1).await;
        schedule(&world, 1).await;
        world.store.hold(op);
        world.pass(secs(20)).await;
        let asked = world.now();
        worker.stop().await.unwrap();
        assert!(world.now() - asked <= 15_000, "{op:?}: {}", world.now() - asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_store_that_fails() {
    for op in [Op::Arrive, Op::Sweep, Op::Ready, Op::Renew, Op::Purge] {
        let world = World::new();
        let ended = Ended::default();
        let worker = worker_that(&world, one_at_a_time(), working(&world, &ended));
        world.store.fail(op, 1_000_000);
        let worker = Running::start(worker);
        world.pass(secs(2)).await;
        let asked = world.now();
        worker.stop().await.unwrap();
        assert!(world.now() - asked <= 1_500, "{op:?}: {}", world.now() - asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_told_before_it_began_starts_nothing() {
    let world = World::new();
    schedule(&world, 0).await;
    let ended = Ended::default();
    let worker = worker_that(&world, one_at_a_time(), working(&world, &ended));
    worker.run_until(async {}).await.unwrap();
    assert_eq!(world.runs.count(), 0);
    assert_eq!(world.count(State::Scheduled).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_worker_is_a_crash() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, one_at_a_time(), working(&world, &ended)).lease(secs(30));
    let running = Running::start(worker);
    let row = schedule(&world, 10).await;
    let queued = schedule(&world, 10).await;
    world.pass(secs(2)).await;
    running.crash().await;
    world.pass(ms(1)).await;
    assert_eq!(ended.times(), [2_000]);
    for id in [row.id, queued.id] {
        let row = world.row(id).await;
        assert_eq!(
            (row.state, row.attempt, row.version),
            (State::Running, 1, 2),
            "nothing is settled"
        );
    }
    let calls = [Op::Sweep, Op::Renew, Op::Ready].map(|op| world.store.calls(op).len());
    world.pass(secs(20)).await;
    assert_eq!(
        [Op::Sweep, Op::Renew, Op::Ready].map(|op| world.store.calls(op).len()),
        calls,
        "no part of it goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_part_that_panics_ends_the_worker_with_an_error() {
    for op in [Op::Arrive, Op::Ready, Op::Sweep, Op::Settle, Op::Renew] {
        let world = World::new();
        let ended = Ended::default();
        let worker = worker_that(&world, one_at_a_time(), working(&world, &ended));
        let worker = Running::start(worker.lease(secs(3)));
        world
            .store
            .fail_with(op, 1, || std::panic::resume_unwind(Box::new("a defect")));
        schedule(&world, 3).await;
        let error = worker.ended().await.unwrap_err();
        assert!(matches!(error, Error::Worker { .. }), "{op:?}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_given_back_only_when_its_handler_has_really_ended() {
    // On real time: the handler blocks its thread, so that it cannot be stopped before its next await.
    let world = World::new();
    let working = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (started, handler_started) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = std::sync::Arc::new(std::sync::Mutex::new(may_go_on));
    let is_working = working.clone();
    let worker = worker_that(&world, Policy::new(), move |_| {
        let (working, started) = (is_working.clone(), started.clone());
        let may_go_on = may_go_on.clone();
        Box::pin(async move {
            working.store(true, std::sync::atomic::Ordering::SeqCst);
            started.send(()).unwrap();
            // Without the thread's other tasks, which would wait with it.
            let _ = tokio::task::block_in_place(|| may_go_on.lock().unwrap().recv());
            working.store(false, std::sync::atomic::Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(Outcome::Done)
        })
    });
    let running = Running::start(worker.stop_timeout(ms(1)));
    let row = world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    tokio::task::spawn_blocking(move || handler_started.recv())
        .await
        .unwrap()
        .unwrap();
    let stopping = tokio::spawn(running.stop());
    // Whenever the row is seen to be given back, the handler must be over.
    let mut told = false;
    loop {
        let state = world.row(row.task().id).await.state;
        let is_working = working.load(std::sync::atomic::Ordering::SeqCst);
        assert!(
            state == State::Running || !is_working,
            "given back while its handler runs"
        );
        if stopping.is_finished() {
            break;
        }
        if !told {
            told = true;
            // Long after the stop's own patience has ended.
            tokio::time::sleep(ms(300)).await;
            assert_eq!(world.row(row.task().id).await.state, State::Running);
            go_on.send(()).unwrap();
        }
        tokio::task::yield_now().await;
    }
    stopping.await.unwrap().unwrap();
}
