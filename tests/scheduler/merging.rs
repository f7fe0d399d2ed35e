//! Concurrent callers share calls of the store, and notice nothing of it but that it is quick.

use std::sync::Arc;

use delayline::{Error, NewTask, Scheduled, State, TaskId};
use tokio::task::JoinHandle;

use crate::support::{KIND, Op, World, ms, secs};

type Caller = JoinHandle<Result<Vec<Scheduled>, Error>>;

/// A caller of its own for these tasks.
fn caller(world: &World, tasks: Vec<NewTask>) -> Caller {
    let scheduler = world.scheduler.clone();
    tokio::spawn(async move { scheduler.schedule_all(tasks).await })
}

fn task(n: u64) -> NewTask {
    NewTask::new(KIND, &n).after(secs(10))
}

/// A caller for each number, who answers with that number's row.
fn callers(world: &World, numbers: std::ops::Range<u64>) -> Vec<Caller> {
    numbers.map(|n| caller(world, vec![task(n)])).collect()
}

/// Holds the calls, and keeps `calls` of them in flight, of one caller each.
async fn busy(world: &World, calls: u64) -> Vec<Caller> {
    world.store.hold(Op::Insert);
    let mut busy = Vec::new();
    for n in 0..calls {
        busy.extend(callers(world, 1_000_000 + n..1_000_001 + n));
        settled(world).await;
    }
    assert_eq!(world.store.waiting(Op::Insert) as u64, calls);
    busy
}

/// Every task has done what it could at this moment.
async fn settled(world: &World) {
    let now = world.now();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.now(), now);
}

async fn answered(caller: Caller) -> Vec<Scheduled> {
    caller.await.unwrap().unwrap()
}

/// Each caller has a new row, of the payload that is its own.
async fn each_has_its_own(callers: Vec<Caller>, numbers: std::ops::Range<u64>) {
    assert_eq!(callers.len() as u64, numbers.end - numbers.start);
    for (caller, n) in callers.into_iter().zip(numbers) {
        let [Scheduled::New(row)] = &answered(caller).await[..] else {
            panic!("caller {n} has no new row");
        };
        assert_eq!(row.payload, n.to_string().as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_calls_are_in_flight_is_one_call() {
    let world = World::new();
    let busy = busy(&world, 2).await;
    let callers = callers(&world, 0..64);
    settled(&world).await;
    assert_eq!(
        world.store.waiting(Op::Insert),
        2,
        "two are in flight, and no more"
    );
    assert!(callers.iter().all(|caller| !caller.is_finished()));
    world.store.free(Op::Insert);
    each_has_its_own(callers, 0..64).await;
    assert_eq!(busy.len(), 2);
    assert_eq!(world.store.calls(Op::Insert), [1, 1, 64]);
    assert_eq!(world.count(State::Scheduled).await, 66);
    // Each wake-up was sent, as if its caller had been alone.
    settled(&world).await;
    assert_eq!(world.precise.log().len(), 66);
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_waits_for_nobody() {
    let world = World::new();
    for n in 0..5 {
        world.scheduler.schedule(task(n)).await.unwrap();
    }
    assert_eq!(world.store.calls(Op::Insert), [1; 5]);
    assert_eq!(world.now(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_answered_before_the_row_is_written() {
    let world = World::new();
    world.store.hold_answers(Op::Insert);
    let callers = callers(&world, 0..3);
    settled(&world).await;
    assert_eq!(world.count(State::Scheduled).await, 3);
    assert!(callers.iter().all(|caller| !caller.is_finished()));
    world.store.free(Op::Insert);
    each_has_its_own(callers, 0..3).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_more_rows_than_a_batch() {
    let world = World::new();
    let _busy = busy(&world, 2).await;
    // The last caller's rows stay together: they are the next call's.
    let mut callers = callers(&world, 0..499);
    callers.push(caller(&world, vec![task(0), task(1)]));
    settled(&world).await;
    world.store.free(Op::Insert);
    assert_eq!(answered(callers.pop().unwrap()).await.len(), 2);
    each_has_its_own(callers, 0..499).await;
    assert_eq!(world.store.calls(Op::Insert), [1, 1, 499, 2]);
}

#[tokio::test(start_paused = true)]
async fn large_payloads_are_not_brought_together() {
    let world = World::new();
    let _busy = busy(&world, 2).await;
    let large = |kib: usize| NewTask::new(KIND, &"x".repeat(kib << 10));
    let headed = large(600).header("trace", "x".repeat(60 << 10));
    let tasks = [large(400), large(400), large(400), headed, large(1_023), task(1)];
    let callers: Vec<_> = tasks.map(|task| caller(&world, vec![task])).into();
    settled(&world).await;
    world.store.free(Op::Insert);
    for caller in callers {
        answered(caller).await;
    }
    assert_eq!(world.store.calls(Op::Insert), [1, 1, 2, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn many_rows_of_one_caller_share_no_call_and_wait_for_none() {
    let world = World::new();
    let _busy = busy(&world, 2).await;
    let many = caller(&world, (0..250).map(task).collect());
    let few = caller(&world, (0..249).map(task).collect());
    settled(&world).await;
    assert_eq!(world.store.waiting(Op::Insert), 3);
    world.store.free(Op::Insert);
    assert_eq!(answered(many).await.len(), 250);
    assert_eq!(answered(few).await.len(), 249);
    assert_eq!(world.store.calls(Op::Insert), [1, 1, 250, 249]);
}

/// A call of too many bytes takes so long that it is given up, and whoever repeats it, repeats it for ever.
#[tokio::test(start_paused = true)]
async fn many_large_payloads_of_one_caller_go_in_several_calls() {
    let world = World::new();
    let large = |kib: usize| NewTask::new(KIND, &"x".repeat(kib << 10));
    let tasks = || (0..400).map(|_| large(10));
    let added = world.scheduler.schedule_all(tasks()).await.unwrap();
    assert_eq!(added.len(), 400);
    let expected = [102, 102, 102, 94];
    assert_eq!(world.store.calls(Op::Insert), expected);
    let added = world.scheduler.schedule_each(tasks()).await;
    assert!(added.iter().all(Result::is_ok) && added.len() == 400);
    assert_eq!(world.store.calls(Op::Insert)[4..], expected);
    // One that is larger than that goes by itself.
    let mixed = [large(1), large(1_023), large(1), large(1)];
    world.scheduler.schedule_all(mixed).await.unwrap();
    assert_eq!(world.store.calls(Op::Insert)[8..], [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_rows_of_a_caller_stay_together_and_in_order() {
    let world = World::new();
    let keyed = |key: &str, n: u64| task(n).key(key.to_owned()).replace();
    let callers: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|key| caller(&world, (0..3).map(|n| keyed(key, n)).collect()))
        .collect();
    for caller in callers {
        let rows = answered(caller).await;
        let told: Vec<_> = rows
            .iter()
            .map(|row| (matches!(row, Scheduled::New(_)), row.task().payload.clone()))
            .collect();
        let expected = [
            (true, b"0".to_vec()),
            (false, b"1".to_vec()),
            (false, b"2".to_vec()),
        ];
        assert_eq!(told, expected);
    }
    assert_eq!(world.store.calls(Op::Insert), [9]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_once_for_all_and_all_are_told() {
    let world = World::new();
    world.store.fail(Op::Insert, 1);
    let callers_told = callers(&world, 0..3);
    for caller in callers_told {
        let error = caller.await.unwrap().unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "store meddled: away");
    }
    assert!(world.every_row().await.is_empty());
    // They may repeat it.
    each_has_its_own(callers(&world, 0..3), 0..3).await;
    assert_eq!(world.store.calls(Op::Insert), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_written_fails_its_own_caller_alone() {
    let world = World::new();
    let bad: TaskId = world.clock.new_id();
    world.store.spoil(bad);
    for place in 0..7 {
        let good = world.count(State::Scheduled).await;
        let callers: Vec<_> = (0..7)
            .map(|n| {
                let ids = [
                    if n == place { bad } else { world.clock.new_id() },
                    world.clock.new_id(),
                ];
                caller(&world, ids.map(|id| task(n).id(id)).into())
            })
            .collect();
        for (n, caller) in (0..7).zip(callers) {
            let answer = caller.await.unwrap();
            if n == place {
                let error = answer.unwrap_err();
                assert_eq!(error.to_string(), "store meddled: spoilt");
                assert!(!error.is_transient());
                continue;
            }
            for row in answer.unwrap() {
                assert!(matches!(row, Scheduled::New(_)), "{row:?}");
                assert_eq!(row.task().payload, n.to_string().as_bytes());
            }
        }
        assert_eq!(world.count(State::Scheduled).await, good + 12);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_went_away_takes_nobody_with_it() {
    let world = World::new();
    let busy = busy(&world, 2).await;
    // One while its call is in flight, one while it waits for one.
    busy[0].abort();
    let mut callers = callers(&world, 0..3);
    settled(&world).await;
    callers.remove(1).abort();
    settled(&world).await;
    world.store.free(Op::Insert);
    for (caller, payload) in callers.into_iter().zip(["0", "2"]) {
        assert_eq!(answered(caller).await[0].task().payload, payload.as_bytes());
    }
    // Whose call was not made yet has no row.
    assert_eq!(world.store.calls(Op::Insert), [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_call_may_go_away_while_it_is_in_flight() {
    let world = World::new();
    world.store.hold(Op::Insert);
    let mut callers = callers(&world, 0..3);
    settled(&world).await;
    assert_eq!(world.store.waiting(Op::Insert), 1);
    callers.remove(0).abort();
    settled(&world).await;
    world.store.free(Op::Insert);
    each_has_its_own(callers, 1..3).await;
    assert_eq!(world.store.calls(Op::Insert), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_does_not_hold_up_the_others() {
    let world = World::new();
    let mut callers = busy(&world, 2).await;
    callers.extend(self::callers(&world, 0..1));
    world.pass(ms(99)).await;
    assert_eq!(world.store.waiting(Op::Insert), 2);
    world.pass(ms(2)).await;
    assert_eq!(world.store.waiting(Op::Insert), 3);
    // And so on, up to a bound.
    for n in 1..40 {
        callers.extend(self::callers(&world, n..n + 1));
        world.pass(ms(101)).await;
        assert!(world.store.waiting(Op::Insert) <= 16);
    }
    assert_eq!(world.store.waiting(Op::Insert), 16);
    world.store.free(Op::Insert);
    each_has_its_own(callers.split_off(2), 0..40).await;
    let calls = world.store.calls(Op::Insert);
    // Whoever came when there were 16 went together.
    assert_eq!((calls.len(), calls.iter().sum::<usize>()), (17, 42));

    // What was slow does not count when it is over: two at once, as before.
    let _busy = busy(&world, 2).await;
    let _third = self::callers(&world, 0..1);
    settled(&world).await;
    assert_eq!(world.store.waiting(Op::Insert), 2);
}

#[tokio::test(start_paused = true)]
async fn calls_end_with_the_scheduler() {
    let world = World::new();
    let callers = busy(&world, 2).await;
    let World { store, scheduler, .. } = world;
    for caller in callers {
        caller.abort();
    }
    drop(scheduler);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&store), 1);
}
