//! Leases: kept while a handler runs, taken over when a worker is gone, and never run out in secret.

use std::sync::{Arc, Mutex};

use delayline::store::{Ending, Settlement, Store};
use delayline::{Clock, Context, NewTask, Outcome, Policy, State, Task, Worker};

use crate::outcomes::worker_that;
use crate::support::{Answered, KIND, Op, Running, START, World, ms, secs};

/// When handlers ended, by themselves or stopped: in milliseconds since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended(Arc<Mutex<Vec<i64>>>);

pub(crate) struct Guard(Ended, Clock);

impl Ended {
    pub(crate) fn guard(&self, clock: &Clock) -> Guard {
        Guard(self.clone(), clock.clone())
    }

    pub(crate) fn times(&self) -> Vec<i64> {
        self.0.lock().unwrap().clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let now = self.1.now().as_millis() - START;
        self.0.0.lock().unwrap().push(now);
    }
}

/// A handler that works for as many seconds as its payload says.
pub(crate) fn working(world: &World, ended: &Ended) -> impl Fn(Context) -> Answered + Send + Sync + use<> {
    let (clock, ended) = (world.clock.clone(), ended.clone());
    move |context| {
        let (clock, ended) = (clock.clone(), ended.clone());
        let work: u64 = serde_json::from_slice(context.payload()).unwrap();
        Box::pin(async move {
            let _guard = ended.guard(&clock);
            clock.sleep(secs(work)).await;
            Ok(Outcome::Done)
        })
    }
}

pub(crate) async fn schedule(world: &World, work: u64) -> Task {
    let scheduled = world.scheduler.schedule(NewTask::new(KIND, &work)).await.unwrap();
    scheduled.task().clone()
}

/// Another worker, as in another process, which is done at once.
fn another(world: &World) -> Running {
    let handler = world.runs.handler(&world.store_clock);
    let worker = Worker::new(&world.another_scheduler()).handle(KIND, handler);
    Running::start(worker.name("another"))
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_for_as_long_as_its_handler_runs_or_its_task_waits_to_be_started() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended)).lease(secs(3));
    let _worker = Running::start(worker);
    let row = schedule(&world, 15).await;
    let waiting = schedule(&world, 0).await;
    world.pass(ms(1)).await;
    let _another = another(&world);
    world.pass(secs(14)).await;
    assert_eq!(world.count(State::Running).await, 2);
    // Renewals alone do not count.
    assert_eq!(world.row(row.id).await.version, 2);
    world.settle().await;
    assert_eq!(world.runs.ids(), [row.id, waiting.id]);
    assert_eq!(world.runs.times(), [0, 15_000]);
    for id in [row.id, waiting.id] {
        let row = world.row(id).await;
        assert_eq!((row.state, row.attempt, row.version), (State::Done, 1, 3));
    }
    let stats = world.scheduler.stats();
    assert_eq!((stats.expired, stats.lost_claims), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_failed_once_is_made_up_for() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended)).lease(secs(30));
    let _worker = Running::start(worker);
    let _another = another(&world);
    schedule(&world, 45).await;
    world.store.fail(Op::Renew, 1);
    world.settle().await;
    assert_eq!(world.runs.times(), [0]);
    assert_eq!(world.scheduler.stats().lost_claims, 0);
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_worker_that_is_gone_are_taken_over_when_its_leases_end() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended)).lease(secs(5));
    let worker = Running::start(worker);
    let running = schedule(&world, 100).await;
    let queued = schedule(&world, 100).await;
    world.pass(secs(1)).await;
    let another = another(&world);
    worker.crash().await;
    assert_eq!(ended.times(), [1_000], "its handlers go with it");
    assert_eq!(world.count(State::Running).await, 2);
    world.settle().await;
    for id in [running.id, queued.id] {
        let last = world.runs.of(id).pop().unwrap();
        assert!(matches!(last.at, 5_000..=6_000), "{last:?}");
        // The claim of the worker that died was an attempt.
        assert_eq!(
            (last.task.attempt, last.task.owner.as_deref()),
            (2, Some("another"))
        );
    }
    assert_eq!(world.runs.count(), 3);
    another.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_in_the_last_attempt_leaves_no_task_to_run_again() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended)).lease(secs(5));
    let worker = Running::start(worker);
    let new = NewTask::new(KIND, &100).max_attempts(1);
    let row = world.scheduler.schedule(new).await.unwrap().task().clone();
    world.pass(secs(1)).await;
    worker.crash().await;
    let _another = another(&world);
    world.settle().await;
    assert_eq!(world.runs.count(), 1);
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 1));
    let error = row.last_error.unwrap();
    assert_eq!(error, "given up after 1 attempts; the last: its worker died");
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_lease_was_lost_is_stopped_and_settles_nothing() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new().concurrency(1), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 25).await;
    world.pass(secs(1)).await;
    world.expire_leases(secs(31)).await;
    let [taken] = &world.claim_elsewhere("another").await[..] else {
        panic!("not taken over");
    };
    assert_eq!((taken.version, taken.attempt), (row.version + 3, 2));
    // Refused at the next renewal, one in ten seconds.
    world.pass_until(10_010).await;
    assert!(
        matches!(ended.times()[..], [10_000..=10_010]),
        "{:?}",
        ended.times()
    );
    assert_eq!(world.row(row.id).await, *taken);
    let stats = world.scheduler.stats();
    assert_eq!((stats.lost_claims, stats.done, stats.retried), (1, 0, 0));
    // Its place is free for the next.
    schedule(&world, 0).await;
    world.pass(ms(1)).await;
    assert_eq!(world.runs.count(), 2);
    // The new owner is the one that settles.
    let done = Settlement {
        id: taken.id,
        version: taken.version,
        ending: Ending::Done,
    };
    assert_eq!(world.rows.settle(vec![done]).await.unwrap(), [true]);
    world.pass(secs(60)).await;
    assert_eq!(world.runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_before_the_loss_is_noticed_settles_nothing_either() {
    for outcome in [
        Outcome::Done,
        Outcome::Retry("no".into()),
        Outcome::Discard("no".into()),
    ] {
        let world = World::new();
        let (clock, answer) = (world.clock.clone(), outcome.clone());
        let worker = worker_that(&world, Policy::new(), move |_| {
            let (clock, answer) = (clock.clone(), answer.clone());
            Box::pin(async move {
                clock.sleep(secs(5)).await;
                Ok(answer)
            })
        });
        let worker = worker.on_dead(|task| panic!("no death of ours: {task:?}"));
        let worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
        schedule(&world, 0).await;
        world.pass(secs(1)).await;
        world.expire_leases(secs(31)).await;
        let taken = world.claim_elsewhere("another").await;
        world.pass(secs(30)).await;
        assert_eq!(world.rows_in(KIND, State::Running).await, taken);
        let stats = world.scheduler.stats();
        assert_eq!(
            (stats.lost_claims, stats.done, stats.retried, stats.dead),
            (1, 0, 0, 0)
        );
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_lease_has_ended_is_not_started() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(10)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    // The store is away from this worker for longer than its lease.
    world.store.hold(Op::Renew);
    schedule(&world, 60).await;
    world.pass(ms(1)).await;
    let queued = schedule(&world, 0).await;
    let late = schedule(&world, 0).await;
    world.pass(secs(30)).await;
    // Another worker's sweep ends the leases; a caller cancels, and is told that it is done.
    world.expire_leases(secs(0)).await;
    assert!(world.scheduler.cancel(queued.id).await.unwrap().is_done());
    world.pass(secs(40)).await;
    assert!(
        world.runs.of(queued.id).is_empty(),
        "never early, never after a cancel"
    );
    assert!(world.runs.of(late.id).is_empty(), "no longer this worker's");
    // The running one and the two that were not started.
    assert_eq!(world.scheduler.stats().lost_claims, 3);
}

#[tokio::test(start_paused = true)]
async fn a_lease_begins_before_its_claim_was_asked_for() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(10)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    world.store.hold(Op::Renew);
    // The claim has its effect at once; its answer takes longer than the lease that it brings.
    world.store.hold_answers(Op::Arrive);
    let row = schedule(&world, 0).await;
    world.pass(secs(11)).await;
    world.expire_leases(secs(0)).await;
    assert!(world.scheduler.cancel(row.id).await.unwrap().is_done());
    world.store.free(Op::Arrive);
    world.pass(secs(5)).await;
    assert_eq!(world.runs.count(), 0);
    assert_eq!(world.scheduler.stats().lost_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_and_won_again_by_the_same_worker_starts_once() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(2).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    for _ in 0..2 {
        schedule(&world, 20).await;
    }
    world.pass(ms(1)).await;
    let queued = schedule(&world, 5).await;
    world.pass(ms(1)).await;
    // Lost while it waits to be started, which this worker learns at its next renewal …
    let release = Settlement {
        id: queued.id,
        version: queued.version + 1,
        ending: Ending::Release,
    };
    assert_eq!(world.rows.settle(vec![release]).await.unwrap(), [true]);
    world.pass_until(12_000).await;
    assert_eq!(world.scheduler.stats().lost_claims, 1);
    // … and won again, still before it can be started.
    assert!(world.scheduler.run_now(queued.id).await.unwrap().is_done());
    world.pass_until(22_000).await;
    assert_eq!(
        world.runs.of(queued.id).len(),
        1,
        "once, though two places became free"
    );
    // Nor does a stop take its running handler for one that was not started.
    worker.stop().await.unwrap();
    assert_eq!(world.row(queued.id).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_running_claim_that_was_lost_and_won_again_runs_once_at_a_time() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 25).await;
    world.pass_until(5_000).await;
    let release = Settlement {
        id: row.id,
        version: row.version + 1,
        ending: Ending::Release,
    };
    assert_eq!(world.rows.settle(vec![release]).await.unwrap(), [true]);
    // This worker's own sweep has it again, before a renewal tells that it was lost.
    world.settle().await;
    let [first, second] = &world.runs.of(row.id)[..] else {
        panic!("{:?}", world.runs.all());
    };
    let [stopped, done] = ended.times()[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(first.at, 1);
    assert!(matches!(second.at, 5_000..=6_000) && stopped == second.at && done == second.at + 25_000);
    assert_eq!(world.row(row.id).await.state, State::Done);
    let stats = world.scheduler.stats();
    assert_eq!((stats.lost_claims, stats.released), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn places_that_lost_claims_leave_are_given_to_those_who_wait() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(1);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let lost = [schedule(&world, 100).await, schedule(&world, 100).await];
    world.pass(ms(1)).await;
    let waiting = schedule(&world, 0).await;
    world.pass(ms(1)).await;
    assert_eq!(world.row(waiting.id).await.state, State::Scheduled);
    for row in &lost {
        let done = Settlement {
            id: row.id,
            version: row.version + 1,
            ending: Ending::Done,
        };
        assert_eq!(world.rows.settle(vec![done]).await.unwrap(), [true]);
    }
    world.pass_until(10_010).await;
    assert_eq!(
        world.row(waiting.id).await.state,
        State::Done,
        "as soon as the loss is known"
    );
}
