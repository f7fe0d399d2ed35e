//! Calls that fail or take long, callers that go away, and rows that are locked.

use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_once_for_all_and_all_are_told() {
    let world = World::<2>::with(|store| {
        store.is_away = true;
        store.spoilt = Mutex::new(Some(id(1)));
    });
    for caller in world.callers(0..3) {
        let error = caller.await.unwrap().unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "store held: refused");
    }
    assert!(!world.is_there(0).await);
    // They may repeat it.
    *world.store.spoilt.lock().unwrap() = None;
    each_has_its_own(world.callers(0..3), 0..3).await;
    assert_eq!(world.calls(), [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_written_fails_its_own_caller_alone() {
    for bad in 0..7 {
        let world = World::<2>::with(|store| store.spoilt = Mutex::new(Some(id(2 * bad))));
        let of_each = |number: u64| 2 * number..2 * number + 2;
        let callers: Vec<_> = (0..7).map(|number| world.caller(rows(of_each(number)))).collect();
        for (number, caller) in (0..7).zip(callers) {
            if number != bad {
                has_its_own(caller, of_each(number)).await;
                continue;
            }
            let error = caller.await.unwrap().unwrap_err();
            assert!(!error.is_transient() && error.to_string() == "store held: refused");
            assert!(!world.is_there(2 * bad + 1).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_takes_no_other_with_it() {
    let world = World::<2>::new();
    let busy = world.busy().await;
    let callers = world.callers(0..3);
    settled().await;
    // One while its call is in flight, one while it waits for one.
    busy[0].abort();
    callers[1].abort();
    settled().await;
    world.hold(false);
    settled().await;
    // A caller whose call was not made yet has no row.
    assert_eq!(world.calls(), [2]);
    assert!(world.is_there(0).await && !world.is_there(1).await && world.is_there(2).await);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_call_may_go_away_while_it_is_in_flight() {
    let world = World::<2>::new();
    world.hold(true);
    let mut callers = world.callers(0..3);
    settled().await;
    assert_eq!(world.waiting(), 1);
    callers.remove(0).abort();
    settled().await;
    world.hold(false);
    each_has_its_own(callers, 1..3).await;
    assert_eq!(world.calls(), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_does_not_hold_up_the_others() {
    let world = World::<2>::new();
    let millis = Duration::from_millis;
    let _busy = world.busy().await;
    let mut callers = world.callers(0..1);
    sleep(millis(99)).await;
    assert_eq!(world.waiting(), 2);
    sleep(millis(2)).await;
    assert_eq!(world.waiting(), 3);
    // And so on, up to a bound.
    for number in 1..40 {
        callers.extend(world.callers(number..number + 1));
        sleep(millis(101)).await;
        assert!(world.waiting() <= 16);
    }
    assert_eq!(world.waiting(), 16);
    world.hold(false);
    each_has_its_own(callers, 0..40).await;
    let calls = world.calls();
    // Callers that came when there were 16 went together.
    assert_eq!((calls.len(), calls.iter().sum::<usize>()), (15, 40));

    // What was slow does not count when it is over: two at once, as before.
    world.hold(true);
    for number in 0..3 {
        world.callers(100 + number..101 + number);
        settled().await;
    }
    assert_eq!(world.waiting(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_callers_that_want_a_locked_row_wait_for_it() {
    let world = World::<2>::with(|store| store.locked = Some(id(7)));
    let _busy = world.busy().await;
    let few = world.callers(0..7);
    let mixed = world.caller(rows(6..9));
    settled().await;
    world.hold(false);
    each_has_its_own(few, 0..7).await;
    let found = mixed.await.unwrap().unwrap().found;
    let told: Vec<_> = found
        .into_iter()
        .map(|answer| answer.unwrap().task().id)
        .collect();
    assert_eq!(told, [6, 7, 8].map(id));
    assert_eq!(world.calls(), [9, 1]);
    assert_eq!(*world.store.waits.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn calls_end_with_what_shares_them() {
    let World { store, inserts } = {
        let world = World::<2>::new();
        for caller in world.busy().await {
            caller.abort();
        }
        world
    };
    settled().await;
    drop(inserts);
    settled().await;
    assert_eq!(Arc::strong_count(&store), 1);
}
