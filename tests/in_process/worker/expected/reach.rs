//! No wake-up of a kind with a check is away for longer than it says.

use delayline::{Outcome, Policy, State};

use super::{Posts, world_of};
use crate::support::{KIND, ROCKETMQ, Running, Setup, World, at, ms, secs};
use crate::worker::outcomes::worker_that;

const MINUTES_5: i64 = 300_000;
/// What a backend may be late by, and the sweep when it has to do without.
const LATE: i64 = 1_000;

fn setups() -> [Setup; 4] {
    [
        Setup::default(),
        Setup {
            table: Some(ROCKETMQ),
            ..Setup::default()
        },
        Setup {
            timers: Some(secs(3 * 86_400)),
            ..Setup::default()
        },
        Setup {
            without_precise: true,
            ..Setup::default()
        },
    ]
}

/// Asserts of a row, for a while, that it is looked at soon enough.
async fn assert_near(world: &World, every: i64, times: usize) {
    for _ in 0..times {
        for row in world.rows_in(KIND, State::Scheduled).await {
            let left = row.wake_at.unwrap().millis_since(world.store_clock.now());
            // As late as timers usually are.
            assert!(left <= every + 1_200, "{left}: {row:?}");
        }
        world.pass(ms(7_777)).await;
    }
}

/// The longest time between two calls of the check.
fn longest_gap(posts: &Posts) -> i64 {
    let times = posts.call_times();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap().max(times[0])
}

#[tokio::test(start_paused = true)]
async fn from_the_first_route_to_the_last_hop() {
    for setup in setups() {
        let (world, posts) = world_of(setup, |check| check);
        let _worker = world.work();
        // Beyond the horizon of the levels, too.
        let due = 3_600_000;
        world.publish(&posts, "a", due).await;
        world.publish(&posts, "beyond", 30 * 3_600_000).await;
        assert_near(&world, MINUTES_5, 465).await;
        assert_eq!(world.runs.times(), [due]);
        assert!(longest_gap(&posts) <= MINUTES_5 + LATE, "{}", longest_gap(&posts));
        // And no more often than that either, but for the last stretch.
        let calls = posts.calls();
        let asked = calls.iter().filter(|call| call.keys.contains(&"a".to_owned()));
        let asked = asked.count();
        assert!((12..=16).contains(&asked), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_snoozes_and_repetitions_too() {
    for setup in setups() {
        let (world, posts) = world_of(setup, |check| check.every(secs(60)));
        let long = secs(1_200);
        let told = posts.clone();
        let clock = world.store_clock.clone();
        let worker = worker_that(&world, Policy::new().backoff(long, long), move |_| {
            let (told, clock) = (told.clone(), clock.clone());
            Box::pin(async move {
                let now = clock.now();
                Ok(match now.millis_since(at(0)) {
                    ..20_000 => Outcome::Retry("once".to_owned()),
                    20_000..1_200_000 => Outcome::Snooze(long),
                    1_200_000..2_400_000 => {
                        // As its table says, too.
                        told.say("a", delayline::expected::Expected::At(now.after(long)));
                        Outcome::Again(long)
                    }
                    _ => Outcome::Done,
                })
            })
        });
        let _worker = Running::start(worker);
        world.publish(&posts, "a", 10_000).await;
        assert_near(&world, 60_000, 700).await;
        assert_eq!(world.count(State::Done).await, 1);
        assert!(world.runs.count() >= 4, "{:?}", world.runs.times());
        assert!(longest_gap(&posts) <= 60_000 + LATE, "{}", longest_gap(&posts));
        assert_eq!(world.scheduler.stats().followed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_its_caller_does_and_however_it_names_the_task() {
    for setup in setups() {
        let (world, posts) = world_of(setup, |check| check);
        let _worker = world.work();
        let row = world.publish(&posts, "a", 3_600_000).await;
        let day = secs(20 * 3_600);
        let scheduler = &world.scheduler;
        assert!(scheduler.reschedule(row.id, day).await.unwrap().is_done());
        assert_near(&world, MINUTES_5, 1).await;
        assert!(scheduler.reschedule((KIND, "a"), day).await.unwrap().is_done());
        assert_near(&world, MINUTES_5, 1).await;
        let later = delayline::Shift::Later(day);
        assert!(scheduler.shift(row.id, later).await.unwrap().is_done());
        assert_near(&world, MINUTES_5, 1).await;
        let replacing = delayline::NewTask::new(KIND, &2).key("a").after(day).replace();
        scheduler.schedule(replacing).await.unwrap();
        assert_near(&world, MINUTES_5, 1).await;
        // The table has said nothing of all that, and has the last word.
        world.pass_until(3_600_001).await;
        assert_eq!(world.runs.times(), [3_600_000]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_level_that_only_the_tolerance_allows_is_not_taken() {
    let setup = Setup {
        table: Some("4s 5s"),
        ..Setup::default()
    };
    let (world, posts) = world_of(setup, |check| check.every(ms(4_900)));
    let _worker = world.work();
    world.publish(&posts, "a", 12_000).await;
    world.settle().await;
    assert_eq!(posts.call_times(), [4_000, 8_000, 12_000]);
    // With no level that is short enough: the precise backend.
    let setup = Setup {
        table: Some("10s"),
        ..Setup::default()
    };
    let (world, posts) = world_of(setup, |check| check.every(ms(4_900)));
    let _worker = world.work();
    world.publish(&posts, "a", 12_000).await;
    world.settle().await;
    assert_eq!(posts.call_times(), [4_900, 9_800, 12_000]);
}

#[tokio::test(start_paused = true)]
async fn other_kinds_reach_as_far_as_ever() {
    for setup in setups() {
        let (world, _) = world_of(setup, |check| check.every(secs(1)));
        let new = delayline::NewTask::new("other", &1).after(secs(7_200));
        let row = world.scheduler.schedule(new).await.unwrap().task().clone();
        // But for the last stretch behind a timer.
        assert!(row.wake_at >= Some(at(7_190_000)), "{row:?}");
        let target = ("other", "named");
        let new = delayline::NewTask::new("other", &1).key("named");
        world.scheduler.schedule(new).await.unwrap();
        let moved = world.scheduler.reschedule(target, secs(7_200)).await.unwrap();
        assert!(moved.task().unwrap().wake_at >= Some(at(7_190_000)), "{moved:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hop_of_the_table_is_asked_about_once() {
    for every in [1, 2, 3, 60] {
        let setup = Setup {
            without_precise: true,
            ..Setup::default()
        };
        let (world, posts) = world_of(setup, |check| check.every(secs(every)));
        let _worker = world.work();
        let row = world.publish(&posts, "a", 300_000).await;
        world.settle().await;
        assert_eq!(world.runs.times(), [300_000]);
        let hops = world.row(row.id).await.hop as usize;
        assert_eq!(posts.calls().len(), hops + 1, "every {every} s");
        let fewest = 300 / every as usize - 1;
        assert!(hops <= fewest, "every {every} s: {hops} hops");
    }
}
