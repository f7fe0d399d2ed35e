//! Callers that wait for the same kinds share calls of the store.

use std::collections::BTreeSet;
use std::time::Duration;

use delayline::claims::{Claimed, Claims};
use delayline::{NewTask, Policy, State, Task};
use tokio::task::JoinHandle;

use super::{LEASE, kinds, take};
use crate::support::{KIND, Op, World, at, ms, secs};

/// Waits a minute for up to `max` tasks of [`KIND`], under this lease and owner.
fn waiting(claims: &Claims, max: usize, lease: Duration, owner: &'static str) -> JoinHandle<Vec<Claimed>> {
    let claims = claims.clone();
    let wait = async move { claims.wait(&kinds(&[KIND]), max, lease, owner, secs(60)).await };
    tokio::spawn(async move { wait.await.unwrap() })
}

fn some(callers: usize, claims: &Claims, max: usize) -> Vec<JoinHandle<Vec<Claimed>>> {
    (0..callers).map(|_| waiting(claims, max, LEASE, "a")).collect()
}

/// Schedules so many tasks that are due at once.
async fn schedule(world: &World, count: usize) {
    let tasks = (0..count).map(|number| NewTask::new(KIND, &number));
    world.scheduler.schedule_all(tasks).await.unwrap();
}

/// How many each caller was given, in all of which no task is there twice.
async fn counts(callers: Vec<JoinHandle<Vec<Claimed>>>) -> Vec<usize> {
    let (mut counts, mut ids) = (Vec::new(), BTreeSet::new());
    for caller in callers {
        let claimed = caller.await.unwrap();
        counts.push(claimed.len());
        for one in claimed {
            assert!(ids.insert(one.task.id), "{} was given twice", one.task.id);
        }
    }
    counts
}

/// What each call of the store has brought, but for those that brought nothing.
fn brought(world: &World) -> Vec<usize> {
    let calls = world.store.calls(Op::Ready);
    calls.into_iter().filter(|&count| count > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn sixteen_callers_are_served_by_one_call_in_the_order_in_which_they_came() {
    let world = World::new();
    let callers = some(16, &world.scheduler.claims(), 50);
    world.pass(ms(333)).await;
    let before = world.store.calls(Op::Ready).len();
    schedule(&world, 170).await;
    world.pass(ms(1)).await;
    assert_eq!(brought(&world), [170]);
    let served: Vec<_> = callers.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(served, [[true; 4].as_slice(), &[false; 12]].concat());
    // It brought less than there was room for, so no caller asks again at once.
    world.pass(ms(200)).await;
    assert_eq!(world.store.calls(Op::Ready).len(), before + 1);
    schedule(&world, 10).await;
    world.pass(ms(1)).await;
    let last = vec![0; 11];
    assert_eq!(counts(callers).await, [vec![50, 50, 50, 20, 10], last].concat());
    let stats = world.scheduler.stats();
    assert_eq!((stats.started, stats.released), (180, 0));
}

#[tokio::test(start_paused = true)]
async fn one_call_takes_no_more_than_a_batch_nor_than_the_bytes_of_one() {
    let world = World::new();
    schedule(&world, 1_000).await;
    assert_eq!(counts(some(16, &world.scheduler.claims(), 50)).await, [50; 16]);
    assert_eq!(brought(&world), [500, 300]);

    let world = World::new();
    for _ in 0..5 {
        let task = NewTask::from_bytes(KIND, vec![0; 100]);
        world.scheduler.schedule(task).await.unwrap();
    }
    let claims = world.scheduler.claims().payload_bytes(101).unwrap();
    assert_eq!(counts(some(3, &claims, 2)).await, [2, 2, 1]);
    assert_eq!(brought(&world), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_for_a_caller_that_is_gone_is_the_next_ones_or_given_back() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let callers = some(3, &claims, 2);
    world.pass(ms(100)).await;
    world.store.hold_answers(Op::Ready);
    schedule(&world, 6).await;
    world.pass(ms(1)).await;
    // The first, which has asked for all, and the last.
    callers[0].abort();
    callers[2].abort();
    let later = waiting(&claims, 1, LEASE, "a");
    world.pass(ms(1)).await;
    world.store.free_answers(Op::Ready);
    world.pass(ms(1)).await;
    assert_eq!(brought(&world), [6]);
    let [_, second, _]: [_; 3] = callers.try_into().unwrap();
    assert_eq!(counts(vec![second, later]).await, [2, 1]);
    let back = world.rows_in(KIND, State::Scheduled).await;
    let as_it_was = |task: &Task| (task.attempt, task.due_at) == (0, at(100));
    assert!(back.len() == 3 && back.iter().all(as_it_was), "{back:?}");
    assert_eq!(take(&claims, 10).await.len(), 3);
    let stats = world.scheduler.stats();
    assert_eq!((stats.started, stats.released), (6, 3));
}

#[tokio::test(start_paused = true)]
async fn the_next_caller_does_not_claim_for_the_same_again_when_the_one_that_asked_is_gone() {
    let world = World::new();
    let callers = some(2, &world.scheduler.claims(), 1);
    world.pass(ms(100)).await;
    world.store.hold(Op::Ready);
    schedule(&world, 2).await;
    world.pass(ms(1)).await;
    callers[0].abort();
    world.pass(secs(1)).await;
    assert_eq!(world.store.waiting(Op::Ready), 1);
    world.store.free(Op::Ready);
    world.pass(ms(1)).await;
    assert!(callers[1].is_finished());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_for_callers_that_have_gone_before() {
    let world = World::new();
    let callers = some(3, &world.scheduler.claims(), 2);
    world.pass(ms(100)).await;
    callers[0].abort();
    callers[1].abort();
    world.pass(ms(1)).await;
    schedule(&world, 6).await;
    world.pass(ms(1)).await;
    assert!(callers[2].is_finished());
    assert_eq!(brought(&world), [2]);
}

#[tokio::test(start_paused = true)]
async fn claims_that_their_caller_never_looks_at_are_given_back() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let other = some(1, &claims, 1);
    world.pass(ms(1)).await;
    let of = kinds(&[KIND]);
    let mut unheard = Box::pin(claims.wait(&of, 1, LEASE, "a", secs(60)));
    assert!(futures_util::poll!(&mut unheard).is_pending());
    schedule(&world, 2).await;
    world.pass(ms(1)).await;
    assert_eq!(
        (counts(other).await, world.scheduler.stats().started),
        (vec![1], 1)
    );
    assert_eq!(world.count(State::Running).await, 2);
    drop(unheard);
    world.pass(ms(1)).await;
    assert_eq!(world.count(State::Scheduled).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_handle_is_full_keeps_no_place_before_others() {
    let world = World::new();
    let full = world.scheduler.claims().payload_bytes_in_all(1).unwrap();
    schedule(&world, 1).await;
    let held = take(&full, 1).await;
    assert!(full.is_full());
    let first = waiting(&full, 1, LEASE, "a");
    world.pass(ms(10)).await;
    let second = waiting(&world.scheduler.claims(), 1, LEASE, "a");
    world.pass(ms(90)).await;
    schedule(&world, 2).await;
    world.pass(ms(1)).await;
    assert_eq!((first.is_finished(), second.is_finished()), (false, true));
    // While there are only callers like the first, the store is not asked.
    let asked = world.store.calls(Op::Ready).len();
    world.pass(secs(1)).await;
    assert_eq!(world.store.calls(Op::Ready).len(), asked);
    drop(held);
    world.pass(ms(250)).await;
    assert_eq!(counts(vec![first, second]).await, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn callers_with_another_owner_or_lease_or_other_policies_are_claimed_for_apart() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let other = claims
        .clone()
        .policy(KIND, Policy::new().max_attempts(1))
        .unwrap();
    let callers = [
        waiting(&claims, 2, LEASE, "a"),
        waiting(&claims, 2, LEASE, "b"),
        waiting(&claims, 2, secs(60), "a"),
        waiting(&other, 2, LEASE, "a"),
        waiting(&claims, 1, LEASE, "a"),
    ];
    world.pass(ms(100)).await;
    schedule(&world, 9).await;
    world.pass(ms(1)).await;
    // The first and the last together.
    assert_eq!(brought(&world), [3, 2, 2, 2]);
    // The store was told of a start only where there is one attempt.
    assert_eq!(world.store.calls(Op::Renew), [2]);
    let mut given = Vec::new();
    for caller in callers {
        let claimed = caller.await.unwrap();
        let task = claimed[0].task.clone();
        given.push((
            claimed.len(),
            task.owner.unwrap().to_string(),
            task.wake_at.unwrap(),
        ));
    }
    let of = |count, owner: &str, lease: i64| (count, owner.to_owned(), at(100 + lease));
    assert_eq!(
        given,
        [
            of(2, "a", 30_000),
            of(2, "b", 30_000),
            of(2, "a", 60_000),
            of(2, "a", 30_000),
            of(1, "a", 30_000),
        ]
    );
}
