//! What a store says by itself: that it can never work, and that another process has scheduled something.

use delayline::store::{NewRow, Store, When};
use delayline::{Error, State};

use crate::support::{KIND, Op, Running, Setup, World, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_worker_does_not_start_over_a_store_that_can_never_work() {
    let world = World::new();
    world.store.fail_with(Op::Check, 1, || Error::Store {
        store: "meddled",
        transient: false,
        source: "the schema is of a later release".into(),
    });
    let error = world.worker().run().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "store meddled: the schema is of a later release"
    );
    assert_eq!(world.store.calls(Op::Sweep), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_starts_over_a_store_that_is_away() {
    let world = World::new();
    world.store.fail(Op::Check, 1);
    let _worker = world.work();
    schedule_elsewhere(&world, 0, 0).await;
    world.settle().await;
    assert_eq!(world.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_can_be_stopped_while_the_store_does_not_answer() {
    let world = World::new();
    world.store.hold(Op::Check);
    let worker = world.work();
    world.pass(secs(5)).await;
    assert_eq!(world.store.waiting(Op::Check), 1);
    worker.stop().await.unwrap();
    assert_eq!(world.store.calls(Op::Sweep), [0; 0]);
}

/// Schedules as another process does, whose wake-ups no worker here receives.
async fn schedule_elsewhere(world: &World, delay: u64, overdue_after: u64) {
    let row = NewRow {
        id: world.clock.new_id(),
        kind: KIND.into(),
        key: None,
        payload: b"1".to_vec(),
        headers: [].into(),
        due: When::After(ms(delay)),
        overdue_after: ms(overdue_after),
        max_attempts: None,
        replace: false,
        note: Default::default(),
    };
    world.rows.insert(vec![row]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_sweeps_when_another_process_says_that_something_is_due_soon() {
    for without_precise in [false, true] {
        let world = Setup {
            without_precise,
            ..Setup::default()
        }
        .build();
        let _worker = Running::start(world.worker().sweep_every(secs(10_000)));
        world.pass_until(500).await;
        schedule_elsewhere(&world, 0, 0).await;
        world.pass_until(600).await;
        assert_eq!(world.runs.times(), [0; 0]);
        world.store.say();
        world.pass_until(601).await;
        assert_eq!(world.runs.times(), [600]);
        // Due at once, and not overdue for a while: its process may yet wake it.
        schedule_elsewhere(&world, 0, 1_000).await;
        world.pass_until(650).await;
        assert_eq!(world.runs.count(), 1);
        world.store.say();
        world.pass_until(651).await;
        assert_eq!(world.runs.times(), [600, 650]);
    }
    // With the table it is read ahead, and runs to the millisecond.
    let world = Setup {
        without_precise: true,
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    world.pass_until(5_000).await;
    let before = world.store.calls(Op::Sweep).len();
    world.pass_until(6_000).await;
    let usual = world.store.calls(Op::Sweep).len() - before;
    for _ in 0..10 {
        let now = world.now();
        schedule_elsewhere(&world, 70, 120).await;
        world.store.say();
        world.pass(ms(100)).await;
        assert_eq!(world.runs.times().last(), Some(&(now + 70)));
    }
    assert!(usual <= 3, "so it was not a usual sweep: {usual}");
    assert_eq!(world.count(State::Done).await, 10);
}

#[tokio::test(start_paused = true)]
async fn of_the_workers_of_one_scheduler_one_sweeps_for_what_was_said() {
    let world = World::new();
    let start = || Running::start(world.worker().sweep_every(secs(10_000)));
    let _workers: Vec<_> = (0..8).map(|_| start()).collect();
    world.pass(ms(100)).await;
    let before = world.store.calls(Op::Sweep).len();
    schedule_elsewhere(&world, 0, 0).await;
    // As often as there are workers, each of which would hear it once.
    (0..8).for_each(|_| world.store.say());
    world.pass(ms(50)).await;
    assert_eq!(world.runs.count(), 1);
    // What is said after the first is heard together.
    assert_eq!(world.store.calls(Op::Sweep).len(), before + 2);
}

#[tokio::test(start_paused = true)]
async fn however_much_is_said_a_sweep_comes_every_20_ms_at_the_most() {
    let world = World::new();
    let _worker = Running::start(world.worker().sweep_every(secs(10_000)));
    world.pass(ms(1)).await;
    for _ in 0..1_000 {
        world.store.say();
        world.pass(ms(1)).await;
    }
    let sweeps = world.store.calls(Op::Sweep).len();
    assert!((49..=51).contains(&sweeps), "{sweeps}");
    // What is said within the pause is heard after it.
    world.pass(ms(30)).await;
    let sweeps = world.store.calls(Op::Sweep).len();
    world.store.say();
    world.pass(ms(1)).await;
    assert_eq!(world.store.calls(Op::Sweep).len(), sweeps + 1);
    world.store.say();
    world.pass(ms(1)).await;
    assert_eq!(world.store.calls(Op::Sweep).len(), sweeps + 1);
    world.pass(ms(30)).await;
    assert_eq!(world.store.calls(Op::Sweep).len(), sweeps + 2);
}
