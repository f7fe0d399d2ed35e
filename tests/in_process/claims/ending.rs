//! Claims are ended and extended only by a caller that still holds them.

use std::time::Duration;

use delayline::{Error, State, Worker};
use tokio::task::JoinSet;

use super::{claimed, schedule, take, wait};
use crate::support::{KIND, Op, Running, World, at, ms, secs};

#[tokio::test(start_paused = true)]
async fn what_is_done_is_done_once() {
    let world = World::new();
    let one = claimed(&world).await;
    // By another process.
    let elsewhere = world.another_scheduler().claims();
    assert!(elsewhere.done(one.claim).await.unwrap());
    assert_eq!(world.row(one.task.id).await.state, State::Done);
    assert!(!world.scheduler.claims().done(one.claim).await.unwrap());
    assert!(!elsewhere.extend(one.claim, secs(30)).await.unwrap());
    assert_eq!(world.store.calls(Op::Find), [0; 0], "to be done needs one write");
}

#[tokio::test(start_paused = true)]
async fn what_failed_comes_back_at_its_time() {
    let world = World::new();
    let _worker = Running::start(Worker::new(&world.scheduler).sweep_every(secs(10_000)));
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    assert!(claims.retry(one.claim, "no", Some(ms(10_111))).await.unwrap());
    let row = world.row(one.task.id).await;
    assert_eq!(
        (row.state, row.due_at, row.attempt),
        (State::Scheduled, at(10_111), 1)
    );
    assert_eq!(row.last_error.as_deref(), Some("no"));
    let again = wait(&claims, secs(100)).await.remove(0);
    assert_eq!((world.now(), again.task.attempt), (10_111, 2));
    // By the policy: the second pause is up to two seconds.
    assert!(claims.retry(again.claim, "no", None).await.unwrap());
    let due_at = world.row(one.task.id).await.due_at;
    assert!((at(10_111)..=at(12_111)).contains(&due_at), "{due_at}");
    let again = wait(&claims, secs(100)).await.remove(0);
    assert_eq!((world.store_clock.now(), again.task.attempt), (due_at, 3));
    assert_eq!(world.scheduler.stats().retried, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_snoozed_comes_back_at_its_time_and_was_no_attempt() {
    let world = World::new();
    let _worker = Running::start(Worker::new(&world.scheduler).sweep_every(secs(10_000)));
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    assert!(claims.snooze(one.claim, ms(7_111)).await.unwrap());
    let again = wait(&claims, secs(100)).await.remove(0);
    assert_eq!((world.now(), again.task.attempt), (7_111, 1));
    assert_eq!(world.scheduler.stats().snoozed, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_discarded_is_dead() {
    let world = World::new();
    let one = claimed(&world).await;
    assert!(world.scheduler.claims().discard(one.claim, "gone").await.unwrap());
    let row = world.row(one.task.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 1));
    assert_eq!(row.last_error.as_deref(), Some("gone"));
    assert_eq!(world.scheduler.stats().dead, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_no_row_can_hold_is_refused() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    for error in [
        claims.retry(one.claim, "no", Some(Duration::MAX)).await,
        claims.snooze(one.claim, Duration::MAX).await,
        claims.extend(one.claim, ms(1)).await,
    ] {
        assert!(error.unwrap_err().is_invalid());
    }
    assert_eq!(world.row(one.task.id).await.version, one.claim.version());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_extended_holds_longer() {
    let world = World::new();
    let _worker = Running::start(Worker::new(&world.scheduler));
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    for _ in 0..10 {
        world.pass(secs(20)).await;
        assert!(claims.extend(one.claim, secs(30)).await.unwrap());
        let row = world.row(one.task.id).await;
        assert_eq!(
            (row.wake_at, row.started),
            (Some(world.store_clock.now().after(secs(30))), true)
        );
    }
    assert!(claims.done(one.claim).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_ended_can_be_extended_until_it_is_noticed() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    world.pass(secs(60)).await;
    assert!(claims.extend(one.claim, secs(30)).await.unwrap());
    world.expire_leases(secs(31)).await;
    assert!(!claims.extend(one.claim, secs(30)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_claimant_that_lost_its_claim_can_do_nothing_any_more() {
    let world = World::new();
    let _worker = Running::start(Worker::new(&world.scheduler));
    let claims = world.scheduler.claims();
    let lost = claimed(&world).await.claim;
    world.pass(secs(31)).await;
    let held = take(&claims, 1).await.remove(0);
    assert_eq!(held.task.id, lost.task_id());
    let before = world.row(lost.task_id()).await;
    assert!(!claims.done(lost).await.unwrap());
    assert!(!claims.retry(lost, "no", None).await.unwrap());
    assert!(!claims.snooze(lost, secs(1)).await.unwrap());
    assert!(!claims.discard(lost, "no").await.unwrap());
    assert!(!claims.extend(lost, secs(60)).await.unwrap());
    assert_eq!(world.row(lost.task_id()).await, before);
    assert_eq!(world.scheduler.stats().lost_claims, 5);
    assert!(claims.done(held.claim).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_locked_is_waited_for_for_a_moment() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let (one, other) = (claimed(&world).await, claimed(&world).await);
    world.store.lock(one.task.id);
    let (ended, ()) = tokio::join!(claims.done(one.claim), async {
        // Others are not held up.
        assert!(claims.done(other.claim).await.unwrap());
        assert_eq!(world.now(), 0);
        world.pass(secs(1)).await;
        world.store.unlock(one.task.id);
    });
    assert!(ended.unwrap());
    assert!((1_000..2_000).contains(&world.now()), "{}", world.now());

    let one = claimed(&world).await;
    world.store.lock(one.task.id);
    let errors = [
        claims.done(one.claim).await,
        claims.retry(one.claim, "no", None).await,
        claims.extend(one.claim, secs(30)).await,
    ];
    for error in errors {
        let error = error.unwrap_err();
        assert!(
            error.is_transient() && error.to_string().contains("locked"),
            "{error}"
        );
    }
    world.store.unlock(one.task.id);
    assert!(claims.done(one.claim).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_answer_was_lost_may_be_repeated() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    world.store.lose_answers(Op::Settle, 1);
    assert!(claims.done(one.claim).await.unwrap_err().is_transient());
    assert!(!claims.done(one.claim).await.unwrap());
    assert_eq!(world.row(one.task.id).await.state, State::Done);
    // One that had no effect has it the next time.
    let one = claimed(&world).await;
    world.store.fail(Op::Settle, 1);
    assert!(claims.done(one.claim).await.is_err());
    assert!(claims.done(one.claim).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_written_is_told_so_though_the_store_did_not_know() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let (one, other) = (claimed(&world).await, claimed(&world).await);
    for id in [one.task.id, other.task.id] {
        world.store.leave_unconfirmed(id);
    }
    assert!(claims.done(one.claim).await.unwrap());
    assert!(claims.retry(other.claim, "no", Some(secs(60))).await.unwrap());
    assert_eq!(world.row(one.task.id).await.state, State::Done);
    assert_eq!(world.row(other.task.id).await.state, State::Scheduled);
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.retried, stats.lost_claims), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_while_its_row_was_locked_is_lost() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let one = claimed(&world).await;
    world.store.lock(one.task.id);
    let (ended, ()) = tokio::join!(claims.snooze(one.claim, secs(60)), async {
        world.pass(ms(1)).await;
        world.expire_leases(secs(31)).await;
        world.store.unlock(one.task.id);
    });
    assert!(!ended.unwrap(), "its lease has ended, which is no snooze");
    assert_eq!(world.scheduler.stats().lost_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_ends_share_calls_and_each_has_its_own_answer() {
    let world = World::new();
    for _ in 0..100 {
        schedule(&world, Duration::ZERO).await;
    }
    let claims = world.scheduler.claims();
    let taken = take(&claims, 100).await;
    world.store.hold(Op::Settle);
    world.store.hold(Op::Renew);
    let (mut ends, mut renewals) = (JoinSet::new(), JoinSet::new());
    for (number, one) in taken.iter().enumerate() {
        let (inside, claim) = (claims.clone(), one.claim);
        let lease = secs(10 + number as u64 % 2);
        renewals.spawn(async move { inside.extend(claim, lease).await.unwrap() });
        // Each twice: it is not known which is the first.
        for _ in 0..2 {
            let inside = claims.clone();
            ends.spawn(async move { inside.done(claim).await.unwrap() });
        }
    }
    world.pass(ms(1)).await;
    world.store.free(Op::Renew);
    assert!(renewals.join_all().await.into_iter().all(|held| held));
    world.store.free(Op::Settle);
    let held = ends.join_all().await.into_iter().filter(|held| *held).count();
    assert_eq!((held, world.count(State::Done).await), (100, 100));
    for op in [Op::Settle, Op::Renew] {
        let calls = world.store.calls(op);
        assert!(calls.len() <= 6, "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_ends_is_asked_once_for_all_and_all_are_told() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(claimed(&world).await.claim);
    }
    // The first two go by themselves and wait; the others come together.
    world.store.hold(Op::Settle);
    let mut ends = JoinSet::new();
    for claim in taken {
        let claims = claims.clone();
        ends.spawn(async move { claims.done(claim).await });
        world.pass(ms(1)).await;
    }
    let refused = || Error::Store {
        store: "meddled",
        transient: false,
        source: "refused".into(),
    };
    world.store.fail_with(Op::Settle, 3, refused);
    world.store.free(Op::Settle);
    let answers = ends.join_all().await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(world.rows_in(KIND, State::Done).await.len(), 0);
}
