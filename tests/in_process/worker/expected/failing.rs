//! A check that fails: nothing runs, and it is asked again soon.

use delayline::{State, Worker};

use super::{Mood, world, world_of};
use crate::support::{KIND, Op, Running, Setup, at, ms, secs};

const FAILING: [Mood; 5] = [
    Mood::Fails,
    Mood::Panics,
    Mood::PanicsAtOnce,
    Mood::OneTooFew,
    Mood::OneTooMany,
];

#[tokio::test(start_paused = true)]
async fn what_is_due_does_not_run_until_the_check_answers() {
    for mood in FAILING {
        let (world, posts) = world();
        let _worker = world.work();
        let row = world.publish(&posts, "a", 10_000).await;
        posts.feel(mood);
        world.pass_until(13_500).await;
        let waiting = world.row(row.id).await;
        assert_eq!(
            (waiting.state, waiting.attempt),
            (State::Scheduled, 0),
            "{mood:?}"
        );
        assert_eq!((waiting.due_at, waiting.planned_at), (at(14_000), at(10_000)));
        let why = waiting.last_error.unwrap();
        assert!(why.starts_with("its check failed: "), "{mood:?}: {why}");
        posts.feel(Mood::Well);
        world.settle().await;
        assert_eq!(world.runs.times(), [14_000], "{mood:?}");
        assert_eq!(
            posts.call_times(),
            [10_000, 11_000, 12_000, 13_000, 14_000],
            "{mood:?}"
        );
        assert_eq!(world.runs.all()[0].task.attempt, 1);
        let stats = world.scheduler.stats();
        assert_eq!((stats.check_failed, stats.followed, stats.snoozed), (4, 0, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_early_is_asked_about_again_every_second() {
    for mood in FAILING {
        let (world, posts) = world();
        let _worker = world.work();
        let row = world.publish(&posts, "a", 600_000).await;
        posts.feel(mood);
        world.pass_until(302_500).await;
        let hopping = world.row(row.id).await;
        assert_eq!((hopping.hop, hopping.due_at), (3, at(600_000)), "{mood:?}");
        // A wake-up that is lost now is missed as soon.
        assert_eq!(hopping.wake_at, Some(at(303_050)));
        posts.feel(Mood::Well);
        posts.set("a", 304_000);
        world.settle().await;
        assert_eq!(world.runs.times(), [304_000], "{mood:?}");
        assert_eq!(
            posts.call_times(),
            [300_000, 301_000, 302_000, 303_000, 304_000],
            "{mood:?}"
        );
        assert_eq!(world.scheduler.stats().check_failed, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn what_becomes_due_within_the_second_is_asked_about_when_it_is_due() {
    let (world, posts) = world();
    let _worker = world.work();
    world.publish(&posts, "a", 300_400).await;
    posts.feel(Mood::Fails);
    world.pass_until(300_100).await;
    posts.feel(Mood::Well);
    world.settle().await;
    assert_eq!(posts.call_times(), [300_000, 300_400]);
    assert_eq!(world.runs.times(), [300_400]);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_has_failed_after_five_seconds_or_a_third_of_the_lease() {
    for (lease, limit) in [(secs(30), 5_000), (secs(3), 1_000)] {
        let (world, posts) = world();
        let _worker = Running::start(world.worker().lease(lease));
        world.publish(&posts, "a", 10_000).await;
        posts.feel(Mood::Hangs);
        world.pass_until(10_001).await;
        assert_eq!(world.count(State::Running).await, 1);
        posts.feel(Mood::Well);
        world.settle().await;
        assert_eq!(posts.call_times(), [10_000, 11_000 + limit]);
        assert_eq!(world.runs.times(), [11_000 + limit]);
        let stats = world.scheduler.stats();
        assert_eq!((stats.check_failed, stats.lost_claims, stats.expired), (1, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_for_an_answer_keep_their_leases() {
    let (world, posts) = world();
    let policy = delayline::Policy::new().concurrency(1).prefetch(3_000);
    let worker = crate::worker::outcomes::worker_that(&world, policy, |_| {
        Box::pin(async { Ok(delayline::Outcome::Done) })
    });
    let _worker = Running::start(worker.lease(secs(2)));
    let _another = Running::start(
        Worker::new(&world.unfollowing())
            .name("another")
            .handle(KIND, world.runs.handler(&world.store_clock)),
    );
    posts.feel(Mood::Hangs);
    // The last batch waits until the check has failed for the others, for longer than a lease.
    for n in 0..2_500 {
        world.publish(&posts, &n.to_string(), 10_000).await;
    }
    world.pass_until(12_600).await;
    let stats = world.scheduler.stats();
    assert!(stats.check_failed >= 3, "{stats:?}");
    assert_eq!((stats.lost_claims, stats.expired), (0, 0), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_delays_no_other_kind_and_no_sweep() {
    let healthy = super::Posts::new(&delayline::clock::Clock::simulated(0));
    let setup = Setup {
        follow: vec![("followed", healthy.check())],
        ..Setup::default()
    };
    let (world, posts) = world_of(setup, |check| check);
    let worker = world
        .worker()
        .handle("followed", world.runs.handler(&world.store_clock))
        .handle("free", world.runs.handler(&world.store_clock));
    let _worker = Running::start(worker);
    posts.feel(Mood::Hangs);
    for millis in [10_000, 10_500, 11_000] {
        world.publish(&posts, &millis.to_string(), millis).await;
        healthy.set(&millis.to_string(), millis);
        for kind in ["followed", "free"] {
            let new = delayline::NewTask::new(kind, &1).key(millis.to_string());
            world.scheduler.schedule(new.at(at(millis))).await.unwrap();
        }
    }
    // Early ones hang as well.
    world.publish(&posts, "early", 310_000).await;
    world.pass_until(9_999).await;
    let before = world.store.calls(Op::Sweep).len();
    world.pass_until(14_999).await;
    assert_eq!(
        world.runs.times(),
        [10_000, 10_000, 10_500, 10_500, 11_000, 11_000]
    );
    assert!(world.runs.all().iter().all(|run| run.task.kind.as_str() != KIND));
    assert!(world.store.calls(Op::Sweep).len() >= before + 9);
    posts.feel(Mood::Well);
    world.settle().await;
    assert_eq!(world.runs.count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_gives_back_what_it_asks_about() {
    let (world, posts) = world();
    let worker = world.work();
    let row = world.publish(&posts, "a", 10_000).await;
    posts.feel(Mood::Hangs);
    world.pass_until(10_100).await;
    assert_eq!(world.row(row.id).await.state, State::Running);
    worker.stop().await.unwrap();
    assert_eq!(world.now(), 10_100, "at once");
    let released = world.row(row.id).await;
    assert_eq!((released.state, released.attempt), (State::Scheduled, 0));
    assert_eq!(world.scheduler.stats().released, 1);
    posts.feel(Mood::Well);
    let _worker = world.work();
    world.pass(ms(1)).await;
    assert_eq!(world.runs.times(), [10_100]);
}
