//! A machine that is suspended, a store whose clock is stepped, and a store that is away: leases that end unseen.

use std::sync::Arc;

use delayline::clock::Clock;
use delayline::store::{Action, Change, Expect, Store, Verb};
use delayline::{NewTask, Outcome, Policy, Scheduler, Shift, State, TaskId, Worker};

use crate::support::{KIND, Op, Running, World, at, ms, secs};
use crate::worker::leases::{Ended, schedule, working};
use crate::worker::outcomes::worker_that;

/// A scheduler of another process over the same rows, with a clock that is suspended by itself.
fn process(world: &World) -> (Scheduler, Clock) {
    let clock = world.clock.skewed(0);
    let scheduler = Scheduler::builder(world.store.clone())
        .clock(clock.clone())
        .precise(world.precise.clone())
        .build()
        .unwrap();
    (scheduler, clock)
}

/// A handler that records each run and takes a while.
fn slow_worker(world: &World, scheduler: &Scheduler, clock: &Clock) -> Worker {
    let clock = clock.clone();
    let handler = world.runs.handler_that(&world.store_clock, move |_| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(secs(2)).await;
            Ok(Outcome::Done)
        })
    });
    let policy = Policy::new().concurrency(4).prefetch(68);
    Worker::new(scheduler).handle_with(KIND, policy, handler)
}

async fn cancel(world: &World, id: TaskId) -> bool {
    let change = Change {
        target: id.into(),
        verb: Verb::Cancel,
        expect: Expect::Anything,
        note: Default::default(),
    };
    let answers = world.rows.change(vec![change]).await.unwrap().found;
    answers[0].as_ref().unwrap().is_done()
}

#[tokio::test(start_paused = true)]
async fn what_was_cancelled_while_the_machine_slept_does_not_start_when_it_wakes() {
    let world = World::new();
    let (scheduler, clock) = process(&world);
    let _worker = Running::start(slow_worker(&world, &scheduler, &clock).lease(secs(30)));
    let tasks = (0..72).map(|n| NewTask::new(KIND, &n));
    let tasks = world.scheduler.schedule_all(tasks).await.unwrap();
    world.pass(ms(500)).await;
    assert_eq!((world.runs.count(), world.count(State::Running).await), (4, 72));

    clock.suspend(secs(34));
    world.pass(secs(33)).await;
    let mut cancelled = Vec::new();
    for task in &tasks {
        let id = task.task().id;
        if world.runs.of(id).is_empty() {
            assert!(cancel(&world, id).await, "its lease has ended");
            cancelled.push(id);
        }
    }
    assert_eq!(cancelled.len(), 68);
    world.settle().await;
    world.pass(secs(60)).await;
    let started = cancelled.iter().filter(|&&id| !world.runs.of(id).is_empty());
    assert_eq!(started.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_does_not_end_early_because_a_machine_slept_while_the_store_answered() {
    let world = World::new();
    let until = Some(at(40_000));
    world
        .scheduler
        .pause(KIND, until, "the bank is down")
        .await
        .unwrap();
    let (scheduler, clock) = process(&world);
    world.store.hold(Op::Now);
    let asked = tokio::spawn(async move { scheduler.paused().await });
    world.pass(ms(1)).await;
    clock.suspend(secs(30));
    world.pass(secs(30)).await;
    // It reads its clock only now: nothing has been slept since.
    world.store.free(Op::Now);
    assert_eq!(asked.await.unwrap().unwrap().len(), 1);
    world.pass(secs(1)).await;
    let paused = world.another_scheduler().paused().await.unwrap();
    assert_eq!(paused[0].until, until, "nor is it removed for all");
}

#[tokio::test(start_paused = true)]
async fn claims_that_no_other_worker_took_while_the_machine_slept_are_renewed_and_go_on() {
    let world = World::new();
    let (scheduler, clock) = process(&world);
    let _worker = Running::start(slow_worker(&world, &scheduler, &clock).lease(secs(30)));
    let tasks = (0..12).map(|n| NewTask::new(KIND, &n));
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.pass(ms(500)).await;
    clock.suspend(secs(100));
    world.settle().await;
    assert_eq!(world.runs.count(), 12, "each once");
    assert_eq!(world.count(State::Done).await, 12);
    assert_eq!(scheduler.stats().lost_claims, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_cancelled_after_the_stores_clock_was_stepped_does_not_start() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    schedule(&world, 5).await;
    world.pass(ms(1)).await;
    let waiting = schedule(&world, 0).await;
    world.pass_until(4_200).await;
    // By the store's clock both leases have ended; the worker's own clocks do not show it.
    world.store_clock.step(60_000);
    assert!(world.scheduler.cancel(waiting.id).await.unwrap().is_done());
    world.settle().await;
    world.pass(secs(10)).await;
    assert!(world.runs.of(waiting.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_stores_clock_is_heard_of_though_the_sweep_hangs() {
    let world = World::new();
    let builder = Scheduler::builder(world.store.clone()).clock(world.clock.clone());
    let scheduler = builder.build().unwrap();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let handler = world
        .runs
        .handler_that(&world.store_clock, working(&world, &Ended::default()));
    let worker = Worker::new(&scheduler).handle_with(KIND, policy, handler);
    let _worker = Running::start(worker.lease(secs(30)));
    schedule(&world, 5).await;
    world.pass(secs(1)).await;
    let waiting = schedule(&world, 0).await;
    world.pass(secs(1)).await;
    assert_eq!(world.row(waiting.id).await.state, State::Running);
    world.store.hold(Op::Sweep);
    world.store_clock.step(60_000);
    world.pass(ms(2_500)).await;
    assert!(cancel(&world, waiting.id).await, "its lease has ended");
    world.pass(secs(5)).await;
    world.store.free(Op::Sweep);
    world.settle().await;
    assert!(world.runs.of(waiting.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_mended_while_the_stores_clock_was_behind_does_not_start_by_its_old_lease() {
    let world = World::new();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &Ended::default()));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    schedule(&world, 6).await;
    world.pass(ms(1)).await;
    let waiting = schedule(&world, 0).await;
    world.pass(secs(1)).await;
    world.store_clock.step(-61_000);
    world.pass(secs(2)).await;
    world.rows.purge(100).await.unwrap();
    world.store_clock.step(60_000);
    assert!(cancel(&world, waiting.id).await, "its lease has ended");
    world.settle().await;
    world.pass(secs(10)).await;
    assert!(world.runs.of(waiting.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_cut_off_renews_before_it_sweeps_and_runs_nothing_twice() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 60).await;
    world.pass(secs(1)).await;
    // Nothing reaches the store for longer than the lease; the first to reach it again is the sweep.
    world.store.hold(Op::Renew);
    world.store.hold(Op::Sweep);
    world.pass_until(37_000).await;
    world.store.free(Op::Sweep);
    world.pass(secs(5)).await;
    world.store.free(Op::Renew);
    world.settle().await;
    assert_eq!((world.runs.count(), ended.times().len()), (1, 1));
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.version), (State::Done, 3));
}

#[tokio::test(start_paused = true)]
async fn what_a_step_of_the_stores_clock_has_ended_runs_again_once_its_handler_has_stopped() {
    const STEP: i64 = 60_000;
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 60).await;
    world.pass(secs(1)).await;
    world.store_clock.step(STEP);
    world.settle().await;
    let (runs, ends) = (world.runs.of(row.id), ended.times());
    let ([first, second], [stopped, done]) = (&runs[..], &ends[..]) else {
        panic!("{runs:?}, {ends:?}");
    };
    // By the store's clock, which the handlers' ends are not told by.
    assert_eq!((first.at, second.at), (1, stopped + STEP));
    assert_eq!(*done, stopped + 60_000);
    assert_eq!(world.row(row.id).await.state, State::Done);
    assert_eq!(world.scheduler.stats().lost_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_without_an_answer_and_claimed_anew_is_run_anew() {
    let world = World::new();
    let worker = worker_that(&world, Policy::new(), |context| {
        Box::pin(async move {
            Ok(match context.attempt() {
                1 => Outcome::Again(secs(1)),
                _ => Outcome::Done,
            })
        })
    });
    let _worker = Running::start(worker.lease(secs(3)));
    world.pass(ms(1)).await;
    world.store.lose_answers(Op::Settle, 1);
    world.store.hold(Op::Find);
    schedule(&world, 0).await;
    // It is due again, and claimed, while the worker still asks what became of its first end.
    world.pass(secs(3)).await;
    world.store.free(Op::Find);
    world.pass(secs(3)).await;
    assert!(world.runs.count() >= 2, "{:?}", world.runs.times());
}

#[tokio::test(start_paused = true)]
async fn no_worker_has_to_run_for_a_dead_workers_tasks_to_be_cancelled() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 100).await;
    let moved = schedule(&world, 100).await;
    world.pass(ms(1)).await;
    worker.crash().await;
    world.pass(secs(29)).await;
    assert!(
        !world.scheduler.cancel(row.id).await.unwrap().is_done(),
        "its lease goes on"
    );
    world.pass(secs(3_600)).await;
    assert!(world.scheduler.cancel(row.id).await.unwrap().is_done());
    assert!(
        world
            .scheduler
            .reschedule(moved.id, secs(10))
            .await
            .unwrap()
            .is_done()
    );
    let _worker = world.work();
    world.settle().await;
    assert_eq!(world.runs.of(row.id).len(), 1, "the one that died");
    assert_eq!(world.runs.of(moved.id).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_not_waited_for() {
    let world = World::new();
    let _worker = world.work();
    world.pass(ms(1)).await;
    for op in [Op::Sweep, Op::Arrive, Op::Ready, Op::Hop, Op::Renew, Op::Settle] {
        world.store.hold(op);
    }
    let arrives = world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    world.pass(secs(120)).await;
    for op in [Op::Sweep, Op::Arrive, Op::Ready, Op::Hop, Op::Renew, Op::Settle] {
        world.store.free(op);
    }
    // What hung stays so; new calls are answered.
    world.settle().await;
    assert_eq!(world.row(arrives.task().id).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_the_scheduler_that_is_not_answered_fails() {
    let world = World::new();
    world.store.hold(Op::Insert);
    world.store.hold(Op::Change);
    let scheduled = world.scheduler.schedule(NewTask::new(KIND, &1).key("a")).await;
    assert!(scheduled.unwrap_err().is_transient());
    let cancelled = world.scheduler.cancel((KIND, "a")).await;
    assert!(cancelled.unwrap_err().is_transient());
    let store: Arc<dyn Store> = world.store.clone();
    assert_eq!(store.name(), "meddled");
}

/// Each of them needs its time, which is asked for once.
#[tokio::test(start_paused = true)]
async fn a_batch_of_the_scheduler_that_is_not_answered_fails_as_soon_as_one_call() {
    let world = World::new();
    let due = |number: usize| NewTask::new(KIND, &1).key(number.to_string()).at(at(3_600_000));
    let rows = world.scheduler.schedule_all((0..9).map(due)).await.unwrap();
    world.pass(secs(60)).await;
    world.store.hold(Op::Now);
    let before = world.now();
    world.scheduler.schedule(due(9)).await.unwrap_err();
    let one = world.now() - before;
    for scheduled in world.scheduler.schedule_each((9..18).map(due)).await {
        assert!(scheduled.unwrap_err().is_transient());
    }
    assert_eq!(world.now() - before, 2 * one);
    let moved = rows.iter().map(|row| {
        let task = row.task();
        let later = Action::Shift(Shift::Later(secs(60)));
        (task.id.into(), Expect::Due(task.due_at), later)
    });
    for moved in world.scheduler.change_each(moved).await {
        assert!(moved.unwrap_err().is_transient());
    }
    assert_eq!(world.now() - before, 3 * one);
    // What is due after a while needs it not.
    let after = NewTask::new(KIND, &1).after(secs(60));
    let came = world.scheduler.schedule_each([due(9), after]).await;
    assert!(came[0].is_err() && came[1].is_ok());
}
