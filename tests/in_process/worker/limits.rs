//! How many at once: concurrency, claims in advance, bursts, and workers side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::testing::Faults;
use delayline::{NewTask, Outcome, Policy, State, Worker};

use crate::support::{Answered, KIND, Op, Running, Setup, World, ms, secs};
use crate::worker::outcomes::worker_that;

/// Counts what is going on at once.
#[derive(Clone, Debug, Default)]
struct AtOnce(Arc<[AtomicUsize; 2]>);

impl AtOnce {
    fn begin(&self) {
        let now = self.0[0].fetch_add(1, Ordering::Relaxed) + 1;
        self.0[1].fetch_max(now, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0[0].fetch_sub(1, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        self.0[1].load(Ordering::Relaxed)
    }
}

fn working(
    world: &World,
    at_once: &AtOnce,
    least: u64,
    most: u64,
) -> impl Fn(delayline::Context) -> Answered + Send + Sync + use<> {
    let (clock, at_once) = (world.clock.clone(), at_once.clone());
    move |_| {
        let (clock, at_once) = (clock.clone(), at_once.clone());
        Box::pin(async move {
            at_once.begin();
            clock
                .sleep(ms(least + clock.random_below(most - least + 1)))
                .await;
            at_once.end();
            Ok(Outcome::Done)
        })
    }
}

fn assert_each_once(world: &World, count: usize) {
    let mut ids = world.runs.ids();
    assert_eq!(ids.len(), count);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "each once");
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_and_no_more_claims_are_held_than_the_policy_allows() {
    for (concurrency, prefetch) in [(1, 0), (1, 1), (3, 2), (8, 40)] {
        let world = World::with_levels("1s");
        // Wake-ups, sweeps and freed room claim at the same moments.
        world.store.take(ms(3));
        let at_once = AtOnce::default();
        let policy = Policy::new().concurrency(concurrency).prefetch(prefetch);
        let worker = worker_that(&world, policy, working(&world, &at_once, 1, 40)).sweep_every(ms(7));
        let _worker = Running::start(worker);
        let tasks = (0..300_u64).map(|n| NewTask::new(KIND, &n).after(ms(n * 13 % 1_900)));
        world.scheduler.schedule_all(tasks).await.unwrap();
        let mut most = 0;
        while world.runs.count() < 300 {
            most = most.max(world.count(State::Running).await);
            assert!(
                most <= concurrency + prefetch,
                "{most} of {concurrency} + {prefetch}"
            );
            world.pass(ms(1)).await;
        }
        world.settle().await;
        assert_each_once(&world, 300);
        assert_eq!(at_once.most(), concurrency, "all of it is used, and no more");
        assert!(
            most > concurrency || prefetch == 0,
            "nothing was claimed in advance"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_one_kind_are_not_those_of_another() {
    let world = World::new();
    let (slow, fast) = (AtOnce::default(), AtOnce::default());
    let handler = |at_once: &AtOnce, time| {
        let work = working(&world, at_once, time, time);
        world.runs.handler_that(&world.store_clock, work)
    };
    let worker = Worker::new(&world.scheduler)
        .handle_with(
            KIND,
            Policy::new().concurrency(1).prefetch(0),
            handler(&slow, 60_000),
        )
        .handle_with(
            "fast",
            Policy::new().concurrency(2).prefetch(2),
            handler(&fast, 10),
        );
    let _worker = Running::start(worker);
    let tasks = (0..40).map(|n| NewTask::new(if n < 20 { KIND } else { "fast" }, &n));
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.pass(secs(5)).await;
    assert_eq!((slow.most(), fast.most()), (1, 2));
    assert_eq!(world.rows_in("fast", State::Done).await.len(), 20);
    assert_eq!(world.count(State::Running).await, 1);
}

/// Has 5,000 tasks run that are due at once, each of 10 ms and 8 at a time.
async fn burst(world: &World) -> AtOnce {
    let at_once = AtOnce::default();
    let policy = Policy::new().concurrency(8);
    let worker = worker_that(world, policy, working(world, &at_once, 10, 10));
    let tasks = (0..5_000).map(|n| NewTask::new(KIND, &n).after(secs(10)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    let _worker = Running::start(worker);
    world.settle().await;
    assert_each_once(world, 5_000);
    at_once
}

/// The table tells again of what is moved meanwhile, so nothing is missed by it.
#[tokio::test(start_paused = true)]
async fn of_the_tables_wake_ups_only_those_are_looked_at_that_there_is_room_for() {
    let setup = Setup {
        without_precise: true,
        ..Setup::default()
    };
    let world = setup.build();
    burst(&world).await;
    // One was about what had been claimed from the backlog meanwhile; with looks at all 5,000 there are sixteen.
    let looks = world.store.calls(Op::Arrive);
    let in_vain = looks.iter().filter(|&&claimed| claimed == 0).count();
    assert!(in_vain <= 1 && looks.len() > in_vain, "{looks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_runs_once_each_and_is_claimed_in_large_batches() {
    let world = World::new();
    assert_eq!(burst(&world).await.most(), 8);
    // 5,000 of 10 ms each, 8 at a time, and not a moment idle in between.
    let last = world.runs.times().into_iter().max().unwrap();
    assert_eq!(last, 10_000 + 5_000 / 8 * 10 - 10);

    let claims: Vec<usize> = [Op::Arrive, Op::Ready, Op::Sweep]
        .into_iter()
        .flat_map(|op| world.store.calls(op))
        .filter(|&claimed| claimed > 0)
        .collect();
    assert_eq!(claims.iter().sum::<usize>(), 5_000);
    // 456 fit; each further claim waits for half of what is claimed in advance. The sweep takes some of its own.
    assert!(claims.len() <= 5_000 / 150, "{} claims: {claims:?}", claims.len());
    // A wake-up without room is looked at once, in its batch.
    assert!(
        world.store.calls(Op::Arrive).len() <= 12,
        "{:?}",
        world.store.calls(Op::Arrive)
    );
    assert!(world.scheduler.stats().no_room >= 4_000);
}

#[tokio::test(start_paused = true)]
async fn no_claim_asks_for_more_than_a_batch() {
    let world = World::new();
    world.precise.set_faults(Faults {
        lose: 100,
        ..Faults::default()
    });
    world.store.hold(Op::Sweep);
    world
        .scheduler
        .schedule_all((0..3_000).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    let policy = Policy::new().concurrency(5_000).prefetch(usize::MAX);
    let at_once = AtOnce::default();
    let _worker = Running::start(worker_that(&world, policy, working(&world, &at_once, 100, 100)));
    world.settle().await;
    assert_each_once(&world, 3_000);
    assert_eq!(world.store.calls(Op::Ready), [500, 500, 500, 500, 500, 500, 0]);
    assert_eq!(world.runs.times(), [0; 3_000]);
}

#[tokio::test(start_paused = true)]
async fn a_task_turned_away_while_a_claim_is_under_way_is_claimed_right_after_it() {
    let world = World::new();
    let at_once = AtOnce::default();
    let policy = Policy::new().concurrency(8).prefetch(0);
    let worker = worker_that(&world, policy, working(&world, &at_once, 1_000, 1_000));
    // The first claim found nothing, and has all the room until that is known.
    world.store.hold_answers(Op::Ready);
    let _worker = Running::start(worker.sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    world
        .scheduler
        .schedule_all((0..4).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    world.pass(ms(1)).await;
    assert_eq!(world.runs.count(), 0);
    world.store.free(Op::Ready);
    world.pass(ms(1)).await;
    assert_eq!(world.runs.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn room_that_a_claim_kept_and_did_not_use_is_given_to_tasks_that_wait_for_it() {
    let world = World::new();
    let at_once = AtOnce::default();
    let policy = Policy::new().concurrency(8).prefetch(0);
    let worker = worker_that(&world, policy, working(&world, &at_once, 20_000, 20_000));
    let _worker = Running::start(worker);
    // A sweep is in the store, with half of the room kept, when the wake-ups arrive.
    world.store.hold(Op::Sweep);
    world.pass(secs(1)).await;
    assert_eq!(world.store.waiting(Op::Sweep), 1);
    world
        .scheduler
        .schedule_all((0..8).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    world.pass(ms(1)).await;
    assert_eq!(world.runs.count(), 4, "half of the room is kept");
    // The sweep finds nothing: nothing is overdue yet.
    world.store.free(Op::Sweep);
    world.pass(ms(1)).await;
    assert_eq!(world.runs.count(), 8, "at once when it is free");
}

#[tokio::test(start_paused = true)]
async fn what_a_full_worker_has_no_room_for_is_taken_by_another() {
    let world = World::new();
    world.precise.set_faults(Faults {
        lose: 100,
        ..Faults::default()
    });
    let at_once = AtOnce::default();
    let worker = || {
        let policy = Policy::new().concurrency(1).prefetch(0);
        worker_that(&world, policy, working(&world, &at_once, 60_000, 60_000))
    };
    // Without wake-ups only the sweeps see the tasks; and the one that is full soon sees the second far more often.
    let _eager = Running::start(worker().sweep_every(ms(100)));
    let _slow = Running::start(worker().sweep_every(secs(2)));
    world.pass(secs(3)).await;
    world
        .scheduler
        .schedule_all((0..2).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    world.pass(secs(3)).await;
    assert_eq!(world.runs.times().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_claims_too_many_leaves_the_rest_to_the_end_of_their_leases() {
    let world = World::new();
    let at_once = AtOnce::default();
    let policy = Policy::new().concurrency(2).prefetch(0);
    let worker = worker_that(&world, policy, working(&world, &at_once, 100, 100));
    let _worker = Running::start(worker.lease(secs(5)));
    world.pass(ms(1)).await;
    world.store.claim_too_many(3);
    world
        .scheduler
        .schedule_all((0..5).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    world.pass(secs(4)).await;
    assert_eq!(
        (world.count(State::Done).await, world.count(State::Running).await),
        (4, 1)
    );
    world.store.claim_too_many(0);
    world.settle().await;
    assert_each_once(&world, 5);
    assert_eq!(at_once.most(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_workers_over_one_store_share_the_work_and_each_task_runs_once() {
    let world = World::new();
    world.store.take(ms(3));
    let at_once = AtOnce::default();
    let policy = || Policy::new().concurrency(4).prefetch(4);
    let first = worker_that(&world, policy(), working(&world, &at_once, 1, 100)).name("first");
    let other = world.another_scheduler();
    let handler = world
        .runs
        .handler_that(&world.store_clock, working(&world, &at_once, 1, 100));
    let second = Worker::new(&other)
        .handle_with(KIND, policy(), handler)
        .name("second");
    let _workers = [Running::start(first), Running::start(second)];
    let tasks = (0..1_000_u64).map(|n| NewTask::new(KIND, &n).after(ms(n % 50 * 100)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.settle().await;
    assert_each_once(&world, 1_000);
    assert_eq!(at_once.most(), 8);
    for owner in ["first", "second"] {
        let done = world.rows_in(KIND, State::Done).await;
        let share = done
            .iter()
            .filter(|row| row.owner.as_deref() == Some(owner))
            .count();
        assert!(share >= 300, "{owner}: {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waited_for_the_store_is_not_taken_for_later_than_it_is() {
    let world = World::new();
    let runs = world.runs.clone();
    let policy = Policy::new().deadline(secs(6));
    let worker = worker_that(&world, policy, move |_| Box::pin(async { Ok(Outcome::Done) }));
    let _worker = Running::start(worker.sweep_every(secs(3_600)));
    world.pass(secs(1)).await;
    for op in [Op::Arrive, Op::Ready] {
        world.store.hold(op);
    }
    let task = NewTask::new(KIND, "");
    let id = world.scheduler.schedule(task).await.unwrap().task().id;
    world.pass(secs(4)).await;
    for op in [Op::Arrive, Op::Ready] {
        world.store.free(op);
    }
    // The store read its clock after those 4 s: the deadline is 2 s away.
    world.settle().await;
    assert_eq!(world.row(id).await.state, State::Done);
    assert_eq!(runs.of(id).len(), 1);
}
