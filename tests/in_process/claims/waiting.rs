//! Callers that wait for due tasks: told at once, served in order, and few of them ask the store.

use std::sync::Arc;
use std::time::Duration;

use delayline::claims::Claims;
use delayline::store::{MemoryStore, Store};
use delayline::{Error, NewTask, Scheduler, State, Worker};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LEASE, kinds, schedule, take, wait};
use crate::support::{KIND, Op, Running, World, ms, secs};

/// Callers that each wait for one task of these kinds, in this order; gives when each was served.
fn waiting(
    world: &World,
    callers: usize,
    of: &'static [&'static str],
    max_wait: Duration,
) -> JoinSet<Served> {
    let mut all = JoinSet::new();
    for caller in 0..callers {
        let claims = world.scheduler.claims();
        let clock = world.clock.clone();
        all.spawn(async move {
            let owner = caller.to_string();
            let taken = claims.wait(&kinds(of), 1, LEASE, &owner, max_wait).await.unwrap();
            let at = clock.now().as_millis() - crate::support::START;
            Served {
                caller,
                at,
                count: taken.len(),
            }
        });
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Served {
    at: i64,
    caller: usize,
    count: usize,
}

async fn all(callers: JoinSet<Served>) -> Vec<Served> {
    let mut served = callers.join_all().await;
    served.sort();
    served
}

fn asked(world: &World) -> usize {
    world.store.calls(Op::Ready).len()
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_given_at_once_and_else_nothing_after_the_wait() {
    let world = World::new();
    let claims = world.scheduler.claims();
    assert_eq!(wait(&claims, Duration::ZERO).await, []);
    assert_eq!(wait(&claims, ms(900)).await, []);
    assert_eq!(world.now(), 900);
    schedule(&world, Duration::ZERO).await;
    assert_eq!(wait(&claims, Duration::ZERO).await.len(), 1);
    assert_eq!(world.now(), 900);
}

#[tokio::test(start_paused = true)]
async fn however_many_wait_for_the_same_kinds_one_asks_every_quarter_of_a_second() {
    for callers in [1, 1_000] {
        let world = World::new();
        let served = all(waiting(&world, callers, &[KIND, "mail.send"], ms(9_900))).await;
        assert!(
            served
                .iter()
                .all(|served| (served.at, served.count) == (9_900, 0))
        );
        // Two kinds have one place in turns, so to be sure takes two calls.
        assert_eq!(asked(&world), 2 * 40, "{callers} callers");
        // No caller waits, so none asks.
        world.pass(secs(100)).await;
        assert_eq!(asked(&world), 2 * 40);
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_later_ask_no_more_often() {
    let world = World::new();
    let mut callers = JoinSet::new();
    for _ in 0..99 {
        let claims = world.scheduler.claims();
        callers.spawn(async move { wait(&claims, secs(100)).await });
        world.pass(ms(10)).await;
    }
    assert_eq!(asked(&world), 4);
}

#[tokio::test(start_paused = true)]
async fn a_task_for_now_ends_the_wait_at_once_without_any_worker() {
    let world = World::new();
    let callers = waiting(&world, 3, &[KIND], secs(60));
    world.pass(ms(333)).await;
    schedule(&world, Duration::ZERO).await;
    world.pass(ms(100)).await;
    let later = schedule(&world, secs(1_000)).await;
    world.pass(ms(100)).await;
    assert!(world.scheduler.run_now(later.id).await.unwrap().is_done());
    let served: Vec<_> = all(callers)
        .await
        .iter()
        .map(|one| (one.caller, one.at, one.count))
        .collect();
    // In the order in which they came.
    assert_eq!(served, [(0, 333, 1), (1, 533, 1), (2, 60_000, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_a_worker_receives_ends_the_wait_to_the_millisecond() {
    let world = World::new();
    // It has a handler for nothing, and does not sweep.
    let _worker = Running::start(Worker::new(&world.scheduler).sweep_every(secs(10_000)));
    let callers = waiting(&world, 2, &["mail.send", KIND], secs(60));
    schedule(&world, ms(10_111)).await;
    schedule(&world, ms(20_222)).await;
    let served: Vec<_> = all(callers)
        .await
        .iter()
        .map(|one| (one.at, one.caller))
        .collect();
    assert_eq!(served, [(10_111, 0), (20_222, 1)]);
}

#[tokio::test(start_paused = true)]
async fn wake_ups_of_kinds_without_a_handler_hop_on() {
    let world = World::with_levels("1s 5s 10s");
    let _worker = Running::start(Worker::new(&world.scheduler));
    let callers = waiting(&world, 1, &[KIND], secs(60));
    schedule(&world, ms(37_123)).await;
    assert_eq!(all(callers).await[0].at, 37_123);
    assert!(world.scheduler.stats().hops >= 3);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_ended_is_noticed_and_a_caller_that_waits_is_given_the_task() {
    let world = World::new();
    let _worker = Running::start(Worker::new(&world.scheduler));
    let claims = world.scheduler.claims();
    schedule(&world, Duration::ZERO).await;
    let lost = take(&claims, 1).await.remove(0);
    let served = all(waiting(&world, 1, &[KIND], secs(60))).await;
    // As soon as a sweep comes.
    assert!((30_000..=30_500).contains(&served[0].at), "{served:?}");
    assert!(!claims.done(lost.claim).await.unwrap());
    assert_eq!(world.scheduler.stats().expired, 1);
}

#[tokio::test(start_paused = true)]
async fn what_another_process_was_woken_for_is_found_within_a_quarter_of_a_second() {
    let world = World::new();
    let elsewhere = world.another_scheduler();
    let callers = waiting(&world, 10, &[KIND], secs(60));
    world.pass(ms(1_010)).await;
    for _ in 0..3 {
        elsewhere.schedule(NewTask::new(KIND, &1)).await.unwrap();
    }
    let served: Vec<_> = all(callers).await.iter().map(|one| (one.at, one.count)).collect();
    assert_eq!(served[..3], [(1_250, 1); 3]);
    assert_eq!(served[3..], [(60_000, 0); 7]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_other_kinds_goes_on_waiting() {
    let world = World::new();
    let both = waiting(&world, 1, &[KIND, "mail.send"], secs(2));
    world.pass(ms(1)).await;
    let other = waiting(&world, 1, &["mail.send"], secs(2));
    let mine = waiting(&world, 1, &[KIND], secs(2));
    world.pass(ms(9)).await;
    let before = asked(&world);
    schedule(&world, Duration::ZERO).await;
    schedule(&world, Duration::ZERO).await;
    world.pass(ms(1)).await;
    assert_eq!(world.count(State::Running).await, 2);
    assert!(asked(&world) - before <= 5, "the third did not ask");
    assert_eq!((all(both).await[0].at, all(mine).await[0].at), (10, 10));
    assert_eq!(
        all(other).await[0],
        Served {
            at: 2_001,
            caller: 0,
            count: 0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_takes_nothing_and_holds_up_no_other() {
    let world = World::new();
    let claims = world.scheduler.claims();
    for _ in 0..3 {
        assert!(timeout(ms(100), wait(&claims, secs(60))).await.is_err());
    }
    let before = asked(&world);
    let id = schedule(&world, Duration::ZERO).await.id;
    world.pass(secs(10)).await;
    assert_eq!((asked(&world), world.row(id).await.version), (before, 1));
    // The first in line goes away, and the next is told.
    assert_eq!(take(&claims, 1).await.len(), 1);
    let leaving = tokio::spawn({
        let claims = claims.clone();
        async move { wait(&claims, secs(60)).await }
    });
    world.pass(ms(10)).await;
    let (taken, ()) = tokio::join!(wait(&claims, secs(60)), async {
        world.pass(ms(10)).await;
        leaving.abort();
        world.pass(ms(10)).await;
        schedule(&world, Duration::ZERO).await;
    });
    assert_eq!((taken.len(), world.now()), (1, 10_330));
}

#[tokio::test(start_paused = true)]
async fn what_becomes_due_while_the_store_is_asked_is_not_missed() {
    let world = World::new();
    world.store.hold_answers(Op::Ready);
    let callers = waiting(&world, 1, &[KIND], secs(60));
    world.pass(ms(10)).await;
    // The look is over, its answer is still on the way.
    schedule(&world, Duration::ZERO).await;
    world.pass(ms(10)).await;
    world.store.free_answers(Op::Ready);
    assert_eq!(all(callers).await[0].at, 20);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_claimed_when_a_wait_ends_is_given() {
    let world = World::new();
    world.store.hold_answers(Op::Ready);
    schedule(&world, Duration::ZERO).await;
    let callers = waiting(&world, 1, &[KIND], ms(100));
    world.pass(ms(200)).await;
    world.store.free_answers(Op::Ready);
    let served = all(callers).await;
    assert_eq!((served[0].at, served[0].count), (200, 1));
    assert_eq!(world.scheduler.stats().released, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_a_call_is_the_answer_to_the_first_in_line_and_to_no_other() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let refused = || Error::Store {
        store: "meddled",
        transient: false,
        source: "refused".into(),
    };
    world.store.fail_with(Op::Ready, 1, refused);
    schedule(&world, Duration::ZERO).await;
    let of = kinds(&[KIND]);
    let wait = || claims.wait(&of, 1, LEASE, "a", secs(10));
    let (first, second) = tokio::join!(wait(), wait());
    assert!(!first.unwrap_err().is_transient());
    assert_eq!((second.unwrap().len(), world.now()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for_and_if_it_stays_away_that_is_the_answer() {
    let world = World::new();
    let claims: Claims = world.scheduler.claims();
    let of = kinds(&[KIND]);
    world.store.fail(Op::Ready, 4);
    schedule(&world, Duration::ZERO).await;
    assert_eq!(wait(&claims, secs(10)).await.len(), 1);
    assert_eq!(world.now(), 1_000);
    world.store.fail(Op::Ready, 100);
    let waits = (0..10).map(|_| claims.wait(&of, 1, LEASE, "a", secs(2)));
    for answer in futures_util::future::join_all(waits).await {
        assert!(answer.unwrap_err().is_transient());
    }
    assert_eq!(world.now(), 3_000);
    world.store.mend();
    assert_eq!(wait(&claims, ms(1)).await, []);
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_can_be_used_and_an_end_makes_room() {
    let world = World::new();
    let callers = waiting(&world, 2, &[KIND], Duration::MAX);
    world.pass(secs(1_000)).await;
    let claims = world.scheduler.claims();
    schedule(&world, Duration::ZERO).await;
    world.pass(ms(1)).await;
    // The task of the first is back at once, and the second has it.
    let row = world.rows_in(KIND, State::Running).await.remove(0);
    let text = format!("{}.{}", row.id, row.version);
    assert!(
        claims
            .snooze(text.parse().unwrap(), Duration::ZERO)
            .await
            .unwrap()
    );
    let served: Vec<_> = all(callers)
        .await
        .iter()
        .map(|one| (one.at, one.caller))
        .collect();
    assert_eq!(served, [(1_000_000, 0), (1_000_001, 1)]);
    let store: Arc<dyn Store> = world.store.clone();
    assert_eq!(
        store
            .find(&row.id.into())
            .await
            .unwrap()
            .unwrap()
            .owner
            .as_deref(),
        Some("1")
    );
}

/// A service may have a runtime for each of its threads.
#[test]
fn a_wait_ends_also_when_the_runtime_of_an_earlier_one_has_ended() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    // Of a thread of its own.
    let home = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let scheduler = home.block_on(async { Scheduler::new(MemoryStore::new()) });
    let claims = home.block_on(async { scheduler.claims() });
    let left = |runtime: &tokio::runtime::Runtime| {
        let left = runtime.block_on(async { timeout(ms(1), wait(&claims, secs(600))).await });
        assert!(left.is_err());
    };
    let first = runtime();
    left(&first);
    drop(first);

    let second = runtime();
    left(&second);
    let third = runtime();
    let of_third = third.spawn({
        let claims = claims.clone();
        async move { claims.wait(&kinds(&[KIND]), 1, LEASE, "a", secs(600)).await }
    });
    third.block_on(tokio::task::yield_now());
    drop(second);
    let taken = third.block_on(async {
        scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
        timeout(secs(30), of_third).await
    });
    assert_eq!(taken.unwrap().unwrap().unwrap().len(), 1);
}
