//! Leases: kept while a handler runs, and taken over when a worker is gone.

use std::sync::{Arc, Mutex};

use delayline::clock::Clock;
use delayline::{Context, NewTask, Outcome, Policy, State, Task, Worker};

use crate::support::{Answered, KIND, Op, Running, START, World, ms, secs};
use crate::worker::outcomes::worker_that;

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
async fn a_lease_that_has_ended_and_cannot_be_renewed_is_not_renewed_without_a_pause() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(3)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    schedule(&world, 5).await;
    world.pass(ms(1)).await;
    let waiting = schedule(&world, 0).await;
    world.pass(ms(1)).await;
    world.store.lock(waiting.id);
    world.store.take(ms(1));
    world.pass_until(20_000).await;
    // One in a second, and those that lanes have asked for.
    let renewals = world.store.calls(Op::Renew).len();
    assert!(renewals < 40, "{renewals}");
    world.store.unlock(waiting.id);
    world.settle().await;
    assert_eq!(world.runs.of(waiting.id).len(), 1);
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
    // Renewed once: so the store knows which of them has been started.
    world.pass(secs(2)).await;
    let another = another(&world);
    worker.crash().await;
    assert_eq!(ended.times(), [2_000], "its handlers go with it");
    assert_eq!(world.count(State::Running).await, 2);
    world.settle().await;
    // What was started was an attempt, and what only waited was none.
    for (id, attempt) in [(running.id, 2), (queued.id, 1)] {
        let last = world.runs.of(id).pop().unwrap();
        assert!(matches!(last.at, 6_666..=7_700), "{last:?}");
        assert_eq!(
            (last.task.attempt, last.task.owner.as_deref()),
            (attempt, Some("another"))
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_a_handler_that_blocks_for_longer_than_it_may_run_ends() {
    // On real time: what never comes to an await cannot be stopped; but its task must not be held for ever.
    let world = World::new();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let policy = Policy::new().execution_timeout(ms(1));
    let worker = worker_that(&world, policy, move |_| {
        let may_go_on = may_go_on.clone();
        Box::pin(async move {
            // Without the thread's other tasks, which would wait with it.
            let _ = tokio::task::block_in_place(|| may_go_on.lock().unwrap().recv());
            Ok(Outcome::Done)
        })
    });
    let _worker = Running::start(worker.lease(secs(1)));
    let row = schedule(&world, 0).await;
    // And again, once this worker has claimed it anew: it can start it no more.
    let expired = async {
        while world.row(row.id).await.version < 6 {
            tokio::time::sleep(ms(10)).await;
        }
    };
    let expired = tokio::time::timeout(secs(30), expired).await;
    // Before anything can fail: the handler would block the runtime's end.
    drop(go_on);
    expired.unwrap();
}
