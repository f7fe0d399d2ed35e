//! Workers that die with tasks that they have not started, and tasks that kill their workers.

use delayline::store::Expect;
use delayline::{Answer, NewTask, Outcome, Policy, State, TaskId, Worker};

use crate::support::{KIND, Op, Running, Setup, World, ms, secs};

/// A worker whose handlers never come back.
fn stuck(world: &World, policy: Policy) -> Worker {
    let handler = world
        .runs
        .handler_that(&world.store_clock, |_| Box::pin(std::future::pending()));
    Worker::new(&world.scheduler)
        .handle_with(KIND, policy, handler)
        .lease(secs(3))
}

#[tokio::test(start_paused = true)]
async fn what_was_only_waiting_in_a_worker_that_died_was_no_attempt() {
    for attempts in [1, 3] {
        let world = World::new();
        let policy = Policy::new().max_attempts(attempts).concurrency(64);
        let tasks = (0..600).map(|n| NewTask::new(KIND, &n));
        world.scheduler.schedule_all(tasks).await.unwrap();
        let mut started = Vec::new();
        for _ in 0..attempts {
            let worker = Running::start(stuck(&world, policy.clone()));
            world.pass(secs(8)).await;
            worker.crash().await;
            started = world.runs.ids();
        }
        // Another worker, which does them all.
        let handler = world.runs.handler(&world.store_clock);
        let _worker = Running::start(Worker::new(&world.scheduler).handle_with(KIND, policy, handler));
        world.settle().await;
        let dead = world.rows_in(KIND, State::Dead).await;
        for task in &dead {
            let starts = started.iter().filter(|&&id| id == task.id).count();
            assert!(starts >= attempts as usize, "{task:?} was started {starts} times");
        }
        assert!(dead.len() <= 64, "{} are dead", dead.len());
        assert_eq!(world.count(State::Done).await + dead.len(), 600);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_workers_ends_by_its_attempts() {
    let world = World::new();
    let policy = Policy::new().max_attempts(3);
    let row = world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    let id = row.task().id;
    for kill in 1..=6 {
        let worker = Running::start(stuck(&world, policy.clone()));
        // Dead at once: no renewal has told the store of the start.
        for _ in 0..8_000 {
            if world.runs.of(id).len() >= kill {
                break;
            }
            world.pass(ms(1)).await;
        }
        worker.crash().await;
    }
    let _worker = Running::start(stuck(&world, policy));
    world.settle().await;
    // The first start is not known of; after that each is noted before it happens.
    assert_eq!(world.runs.of(id).len(), 4);
    let row = world.row(id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 3));
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_is_noted_before_it_starts() {
    let world = World::new();
    let policy = Policy::new().max_attempts(1);
    let row = world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    world.store.fail(Op::Renew, 3);
    let worker = Running::start(stuck(&world, policy.clone()));
    world.pass(ms(100)).await;
    assert_eq!(world.runs.count(), 0, "not before the store knows");
    world.pass(secs(1)).await;
    assert_eq!(world.runs.count(), 1);
    worker.crash().await;
    let _worker = Running::start(stuck(&world, policy));
    world.settle().await;
    assert_eq!(world.runs.count(), 1);
    let row = world.row(row.task().id).await;
    assert_eq!(row.state, State::Dead);
    assert_eq!(
        row.last_error.as_deref(),
        Some("given up after 1 attempts; the last: its worker died")
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_be_noted_keeps_no_place_from_others() {
    let world = World::new();
    let policy = Policy::new().max_attempts(1).concurrency(1).prefetch(10);
    let handler = world.runs.handler(&world.store_clock);
    let worker = Worker::new(&world.scheduler).handle_with(KIND, policy, handler);
    let _worker = Running::start(worker);
    world.store.hold(Op::Renew);
    let row = world.scheduler.schedule(NewTask::new(KIND, &0)).await.unwrap();
    let locked = row.task().id;
    world.pass(ms(1)).await;
    assert_eq!(world.store.waiting(Op::Renew), 1);
    world.store.lock(locked);
    world.store.free(Op::Renew);
    let others = (1..=10).map(|n| NewTask::new(KIND, &n));
    world.scheduler.schedule_all(others).await.unwrap();
    world.pass(secs(2)).await;
    assert_eq!(world.count(State::Done).await, 10);
    assert!(world.runs.of(locked).is_empty(), "not before the store knows");
    world.store.unlock(locked);
    world.pass(secs(1)).await;
    assert_eq!(world.row(locked).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_workers_die_before_it_is_started_ends_by_its_stalls() {
    let world = World::new();
    let policy = Policy::new().concurrency(1).max_stalls(4);
    let first = NewTask::new(KIND, &1).max_attempts(100);
    world.scheduler.schedule(first).await.unwrap();
    let waiting: TaskId = world
        .scheduler
        .schedule(NewTask::new(KIND, &2))
        .await
        .unwrap()
        .task()
        .id;
    for _ in 0..4 {
        let worker = Running::start(stuck(&world, policy.clone()));
        world.pass(secs(2)).await;
        worker.crash().await;
        world.pass(secs(4)).await;
    }
    let handler = world
        .runs
        .handler_that(&world.store_clock, |_| Box::pin(async { Ok(Outcome::Done) }));
    let _worker = Running::start(Worker::new(&world.scheduler).handle_with(KIND, policy, handler));
    world.settle().await;
    let row = world.row(waiting).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 0));
    assert!(row.last_error.unwrap().contains("max_stalls"));
    assert!(world.runs.of(waiting).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_can_be_dismissed() {
    let world = Setup {
        history: secs(60),
        ..Setup::default()
    }
    .build();
    let handler = world.runs.handler_that(&world.store_clock, |_| {
        Box::pin(async { Ok(Outcome::Discard("no".into())) })
    });
    let _worker = Running::start(Worker::new(&world.scheduler).handle(KIND, handler));
    let task = NewTask::new(KIND, &1).key("a");
    world.scheduler.schedule(task).await.unwrap();
    world.settle().await;
    assert_eq!(world.count(State::Dead).await, 1);
    let dead = world.row((KIND, "a")).await;
    let other = Expect::Version(dead.version + 1);
    let refused = world.scheduler.dismiss_if((KIND, "a"), other).await.unwrap();
    assert_eq!(refused, Answer::Conflict(dead));
    assert!(world.scheduler.dismiss((KIND, "a")).await.unwrap().is_done());
    assert_eq!(
        (
            world.count(State::Dead).await,
            world.count(State::Cancelled).await
        ),
        (0, 1)
    );
    world.pass(secs(60) + secs(60)).await;
    assert_eq!(world.every_row().await, []);
}
