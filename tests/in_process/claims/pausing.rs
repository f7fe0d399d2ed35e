//! Claims of kinds that are paused.

use delayline::{State, defaults};

use super::{LEASE, kinds, schedule, take, wait};
use crate::support::{KIND, Op, World, at, secs};

#[tokio::test(start_paused = true)]
async fn nothing_of_a_paused_kind_is_given_and_everything_of_the_others() {
    let world = World::new();
    let claims = world.scheduler.claims();
    schedule(&world, secs(0)).await;
    let other = delayline::NewTask::new("other", &1);
    world.scheduler.schedule(other).await.unwrap();
    world.another_scheduler().pause(KIND, None, "").await.unwrap();
    assert_eq!(take(&claims, 10).await, []);
    let taken = claims
        .take(&kinds(&[KIND, "other"]), 10, LEASE, "a")
        .await
        .unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].task.kind, "other".into());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_a_paused_kind_is_served_when_it_is_resumed() {
    let world = World::new();
    schedule(&world, secs(0)).await;
    let operator = world.another_scheduler();
    operator.pause(KIND, None, "").await.unwrap();
    let claims = world.scheduler.claims();
    let waiting = tokio::spawn(async move { wait(&claims, secs(60)).await });
    world.pass_until(10_000).await;
    assert!(!waiting.is_finished());
    operator.resume(KIND).await.unwrap();
    world.pass(defaults::PAUSE_SEEN).await;
    assert!(waiting.is_finished());
    let taken = waiting.await.unwrap();
    assert_eq!((taken.len(), taken[0].task.due_at), (1, at(0)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_while_the_store_does_not_say_what_is_paused() {
    for hangs in [false, true] {
        let world = World::new();
        let claims = world.scheduler.claims();
        let row = schedule(&world, secs(0)).await;
        if hangs {
            world.store.hold(Op::List);
        } else {
            world.store.fail(Op::List, 1_000);
        }
        for _ in 0..2 {
            let error = claims.take(&kinds(&[KIND]), 1, LEASE, "a").await.unwrap_err();
            assert!(error.is_transient(), "{error}");
        }
        let waiting = tokio::spawn({
            let claims = claims.clone();
            async move { wait(&claims, secs(60)).await }
        });
        world.pass(secs(10)).await;
        assert!(!waiting.is_finished());
        let untouched = world.row(row.id).await;
        assert_eq!(
            (untouched.state, untouched.version),
            (State::Scheduled, row.version)
        );
        world.store.free(Op::List);
        world.store.mend();
        world.pass(secs(2)).await;
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

/// Its answer is from before the pause, which this process knows.
#[tokio::test(start_paused = true)]
async fn nothing_is_given_by_an_answer_that_was_under_way_when_its_kind_was_paused() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let row = schedule(&world, secs(0)).await;
    world.store.hold_answers(Op::List);
    let taking = tokio::spawn(async move { take(&claims, 1).await });
    while world.store.waiting(Op::List) == 0 {
        tokio::task::yield_now().await;
    }
    world.scheduler.pause(KIND, None, "").await.unwrap();
    world.store.free(Op::List);
    assert_eq!(taking.await.unwrap(), []);
    assert_eq!(world.row(row.id).await.version, row.version);
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_store_has_claimed_is_given_back_if_its_kind_was_paused_meanwhile() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let row = schedule(&world, secs(0)).await;
    world.store.hold(Op::Ready);
    let taking = tokio::spawn(async move { take(&claims, 1).await });
    world.pass(secs(1)).await;
    assert_eq!(world.store.waiting(Op::Ready), 1);
    world.another_scheduler().pause(KIND, None, "").await.unwrap();
    world.pass(defaults::PAUSE_SEEN).await;
    world.store.free(Op::Ready);
    assert_eq!(taking.await.unwrap(), []);
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Scheduled, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_while_others_are_given_back_is_given_back_as_well() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let first = schedule(&world, secs(0)).await;
    let other = delayline::NewTask::new("other", &1);
    let other = world.scheduler.schedule(other).await.unwrap().task().id;
    world.store.hold(Op::Ready);
    let taking = tokio::spawn(async move {
        claims
            .take(&kinds(&[KIND, "other"]), 10, LEASE, "a")
            .await
            .unwrap()
    });
    world.pass(secs(1)).await;
    let operator = world.another_scheduler();
    operator.pause(KIND, None, "").await.unwrap();
    world.pass(defaults::PAUSE_SEEN).await;
    world.store.hold(Op::Settle);
    world.store.free(Op::Ready);
    world.pass(secs(1)).await;
    assert_eq!(world.store.waiting(Op::Settle), 1);
    operator.pause("other", None, "").await.unwrap();
    world.pass(defaults::PAUSE_SEEN).await;
    world.store.free(Op::Settle);
    assert_eq!(taking.await.unwrap(), []);
    for id in [first.id, other] {
        let row = world.row(id).await;
        assert_eq!((row.state, row.attempt), (State::Scheduled, 0));
    }
}
