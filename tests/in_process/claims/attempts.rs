//! What counts as an attempt, and when a task is given up: as with a worker.

use std::time::Duration;

use delayline::{NewTask, Policy, State, Worker};

use super::{kinds, schedule, take};
use crate::support::{KIND, Op, Running, World, ms, secs};

/// A worker that knows no kind, and so sees that leases end.
fn watching(world: &World) -> Running {
    Running::start(Worker::new(&world.scheduler))
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_extended_counts_though_its_claimant_goes_away() {
    let world = World::new();
    let _watching = watching(&world);
    schedule(&world, Duration::ZERO).await;
    let claims = world.scheduler.claims();
    let first = take(&claims, 1).await.remove(0);
    assert!(claims.extend(first.claim, secs(5)).await.unwrap());
    world.pass(secs(6)).await;
    let second = take(&claims, 1).await.remove(0);
    assert_eq!((second.task.attempt, second.task.stalls), (2, 1));
    // Once one was lost, the start is noted before the task is given away.
    world.pass(secs(31)).await;
    let third = take(&claims, 1).await.remove(0);
    assert_eq!((third.task.attempt, third.task.stalls), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_claimants_is_dead_after_its_attempts() {
    for (own, attempts) in [(None, 3), (Some(2), 2), (Some(1), 1)] {
        let world = World::new();
        let _watching = watching(&world);
        let mut task = NewTask::new(KIND, &1);
        if let Some(own) = own {
            task = task.max_attempts(own);
        }
        let id = world.scheduler.schedule(task).await.unwrap().task().id;
        let policy = Policy::new().max_attempts(3);
        let claims = world.scheduler.claims().policy(KIND, policy).unwrap();
        let mut given = 0;
        for _ in 0..6 {
            given += take(&claims, 1).await.len();
            world.pass(secs(31)).await;
        }
        // The first loss does not count, unless it was the last attempt.
        let first = u32::from(attempts > 1);
        assert_eq!(given, attempts as usize + first as usize);
        let row = world.row(id).await;
        assert_eq!((row.state, row.attempt), (State::Dead, attempts));
        assert_eq!(
            row.last_error,
            Some(format!(
                "given up after {attempts} attempts; the last: its worker died"
            ))
        );
        assert_eq!(world.scheduler.stats().dead, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_has_to_be_noted_and_cannot_be_is_none() {
    let world = World::new();
    let task = NewTask::new(KIND, &1).max_attempts(1);
    let id = world.scheduler.schedule(task).await.unwrap().task().id;
    let _watching = watching(&world);
    let claims = world.scheduler.claims();
    world.store.fail(Op::Renew, 1);
    assert_eq!(take(&claims, 1).await, []);
    world.pass(secs(31)).await;
    let row = world.row(id).await;
    assert_eq!((row.state, row.attempt), (State::Scheduled, 0));
    assert_eq!(take(&claims, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_failed_attempt_is_the_end() {
    let world = World::new();
    let policy = Policy::new().max_attempts(3).backoff(ms(0), ms(0));
    let claims = world.scheduler.claims().policy(KIND, policy).unwrap();
    let id = schedule(&world, Duration::ZERO).await.id;
    for attempt in 1..=3 {
        let one = take(&claims, 1).await.remove(0);
        assert_eq!(one.task.attempt, attempt);
        assert!(
            claims
                .retry(one.claim, format!("no {attempt}"), None)
                .await
                .unwrap()
        );
    }
    let row = world.row(id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 3));
    assert_eq!(row.last_error.as_deref(), Some("no 3"));
    let stats = world.scheduler.stats();
    assert_eq!((stats.retried, stats.dead), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn no_retry_goes_beyond_the_deadline() {
    let world = World::new();
    let policy = Policy::new().deadline(secs(60));
    let claims = world.scheduler.claims().policy(KIND, policy).unwrap();
    let id = schedule(&world, Duration::ZERO).await.id;
    let one = take(&claims, 1).await.remove(0);
    assert!(claims.retry(one.claim, "no", Some(secs(61))).await.unwrap());
    let row = world.row(id).await;
    assert_eq!(row.state, State::Dead);
    assert!(
        row.last_error
            .unwrap()
            .ends_with("before the deadline; the last: no")
    );
}

#[tokio::test(start_paused = true)]
async fn policies_are_by_kind() {
    let world = World::new();
    let once = Policy::new().max_attempts(1);
    let claims = world.scheduler.claims().policy("once", once).unwrap();
    for kind in ["once", KIND] {
        world.scheduler.schedule(NewTask::new(kind, &1)).await.unwrap();
    }
    let of = kinds(&["once", KIND]);
    for one in claims.take(&of, 2, secs(30), "a").await.unwrap() {
        assert!(claims.retry(one.claim, "no", None).await.unwrap());
    }
    assert_eq!(world.rows_in("once", State::Dead).await.len(), 1);
    assert_eq!(world.count(State::Scheduled).await, 1);
}
