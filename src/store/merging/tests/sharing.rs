//! What goes into one call.

use super::*;
use crate::store::{Expect, Verb};

/// What comes while so many calls are in flight is one call.
async fn what_comes_meanwhile_is_one_call<const CALLS: usize>() {
    let world = World::<CALLS>::new();
    let busy = world.busy().await;
    let callers = world.callers(0..64);
    settled().await;
    assert_eq!(world.waiting(), CALLS, "so many are in flight, and no more");
    // A caller whose rows are written, but not yet for sure, is not answered.
    assert!(busy.iter().chain(&callers).all(|caller| !caller.is_finished()));
    assert!(world.is_there(1_000_000).await && !world.is_there(0).await);
    world.hold(false);
    each_has_its_own(callers, 0..64).await;
    each_has_its_own(busy, 1_000_000..1_000_000 + CALLS as u64).await;
    assert_eq!(world.calls(), [64]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_the_only_call_is_in_flight_is_one_call() {
    what_comes_meanwhile_is_one_call::<1>().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_two_calls_are_in_flight_is_one_call() {
    what_comes_meanwhile_is_one_call::<2>().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_alone_does_not_wait() {
    let world = World::<2>::new();
    let begun = world.store.clock.instant();
    for number in 0..5 {
        each_has_its_own(world.callers(number..number + 1), number..number + 1).await;
    }
    assert_eq!(world.calls(), [1; 5]);
    assert_eq!(world.store.clock.instant(), begun);
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_more_rows_than_a_batch() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    let few = world.callers(0..499);
    // Its rows stay together: they are the next call's.
    let last = world.caller(rows(499..501));
    settled().await;
    world.hold(false);
    has_its_own(last, 499..501).await;
    each_has_its_own(few, 0..499).await;
    assert_eq!(world.calls(), [499, 2]);
}

#[tokio::test(start_paused = true)]
async fn large_payloads_are_not_brought_together() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    let large = |number, kib: usize| NewRow {
        payload: vec![0; kib << 10],
        ..row(number)
    };
    let headers = [("trace".to_owned(), "x".repeat(60 << 10))].into();
    let headed = NewRow {
        headers,
        ..large(3, 600)
    };
    let of = [
        large(0, 400),
        large(1, 400),
        large(2, 400),
        headed,
        large(4, 1_023),
        row(5),
    ];
    let callers = of.map(|row| world.caller(vec![row]));
    settled().await;
    world.hold(false);
    each_has_its_own(callers.into(), 0..6).await;
    assert_eq!(world.calls(), [2, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn many_rows_of_one_caller_share_no_call_and_wait_for_none() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    let (many, few) = (world.caller(rows(0..250)), world.caller(rows(250..499)));
    settled().await;
    assert_eq!(world.waiting(), 3);
    world.hold(false);
    has_its_own(many, 0..250).await;
    has_its_own(few, 250..499).await;
    assert_eq!(world.calls(), [250, 249]);
}

#[tokio::test(start_paused = true)]
async fn the_rows_of_a_caller_stay_together_and_in_order() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    // The second of its rows is the first once more.
    let callers: Vec<_> = (0..3)
        .map(|number| world.caller([number, number, 10 + number].map(row).into()))
        .collect();
    settled().await;
    world.hold(false);
    for (number, caller) in (0..).zip(callers) {
        let found = caller.await.unwrap().unwrap().found;
        let told: Vec<_> = found
            .into_iter()
            .map(|answer| {
                answer
                    .map(|told| (matches!(told, Scheduled::New(_)), told.task().id))
                    .unwrap()
            })
            .collect();
        assert_eq!(
            told,
            [(true, id(number)), (false, id(number)), (true, id(10 + number))]
        );
    }
    assert_eq!(world.calls(), [9]);
}

#[tokio::test(start_paused = true)]
async fn changes_share_calls_too() {
    let world = World::<2>::new();
    let changes = Arc::new(Merging::new("held", Some(2), world.store.clock.clone()));
    let callers: Vec<_> = (0..64)
        .map(|number| {
            let (store, changes) = (Arc::clone(&world.store), Arc::clone(&changes));
            let cancel = Change {
                target: Target::Id(id(number)),
                verb: Verb::Cancel,
                expect: Expect::Anything,
                note: Note::default(),
            };
            tokio::spawn(async move { changes.ask(&store, vec![cancel]).await })
        })
        .collect();
    for caller in callers {
        let found = caller.await.unwrap().unwrap().found;
        assert!(matches!(found[..], [Ok(Answer::NotFound)]), "{found:?}");
    }
    assert_eq!(world.calls(), [64]);
}
