//! Callers that go away: what they wanted to end is ended, and what they were not given is given back.

use std::time::Duration;

use delayline::{State, Worker};
use tokio::time::timeout;

use super::{LEASE, claimed, kinds, schedule, take, wait};
use crate::support::{KIND, Op, Running, World, at, ms, secs};

#[tokio::test(start_paused = true)]
async fn what_was_claimed_for_a_caller_that_is_gone_is_given_back_at_once() {
    for before_its_effect in [true, false] {
        let world = World::new();
        let claims = world.scheduler.claims();
        let id = schedule(&world, Duration::ZERO).await.id;
        match before_its_effect {
            true => world.store.hold(Op::Ready),
            false => world.store.hold_answers(Op::Ready),
        }
        assert!(timeout(ms(10), take(&claims, 1)).await.is_err());
        assert!(timeout(ms(10), wait(&claims, secs(10))).await.is_err());
        world.store.free(Op::Ready);
        world.pass(ms(1)).await;
        let row = world.row(id).await;
        assert_eq!((row.state, row.attempt, row.due_at), (State::Scheduled, 0, at(0)));
        let stats = world.scheduler.stats();
        assert!(stats.released >= 1 && stats.started == 0, "{stats:?}");
        assert_eq!(take(&claims, 1).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_is_told_of_what_is_given_back() {
    let world = World::new();
    let claims = world.scheduler.claims();
    world.store.hold_answers(Op::Ready);
    schedule(&world, Duration::ZERO).await;
    let leaving = tokio::spawn({
        let claims = claims.clone();
        async move { take(&claims, 1).await }
    });
    world.pass(ms(10)).await;
    let (waited, ()) = tokio::join!(wait(&claims, secs(10)), async {
        // It has asked in vain when the other goes away.
        world.pass(ms(10)).await;
        leaving.abort();
        world.store.free_answers(Op::Ready);
    });
    assert_eq!((waited.len(), world.now()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_came_after_its_lease_is_given_to_no_caller() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let id = schedule(&world, Duration::ZERO).await.id;
    world.store.hold_answers(Op::Ready);
    let of = kinds(&[KIND]);
    let (taken, ()) = tokio::join!(claims.take(&of, 1, secs(1), "a"), async {
        world.pass(secs(1)).await;
        world.store.free(Op::Ready);
    });
    assert_eq!(taken.unwrap(), []);
    assert_eq!(world.row(id).await.state, State::Scheduled);
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_caller_is_gone_is_written_and_its_wake_up_sent() {
    let world = World::new();
    let _worker = Running::start(Worker::new(&world.scheduler).sweep_every(secs(10_000)));
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    world.store.hold(Op::Settle);
    let gone = timeout(ms(10), claims.retry(one.claim, "no", Some(secs(5)))).await;
    assert!(gone.is_err());
    world.store.free(Op::Settle);
    world.pass(ms(1)).await;
    let due_at = world.row(one.task.id).await.due_at;
    assert_eq!(due_at, at(5_010));
    let again = claims
        .wait(&kinds(&[KIND]), 1, LEASE, "a", secs(60))
        .await
        .unwrap();
    assert_eq!((again.len(), world.now()), (1, 5_010));
    assert_eq!(world.scheduler.stats().retried, 1);
}
