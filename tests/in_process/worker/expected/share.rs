//! The check is asked for many at once, and what it stops leaves its place to others.

use delayline::expected::Expected;
use delayline::{Policy, State};

use super::{Mood, Posts, world, world_of};
use crate::support::{Op, Running, Setup, World, ms, secs};
use crate::worker::outcomes::worker_that;

/// A worker that can hold four tasks.
fn narrow(world: &World) -> Running {
    let policy = Policy::new().concurrency(2).prefetch(2);
    let worker = worker_that(world, policy, |_| {
        Box::pin(async { Ok(delayline::Outcome::Done) })
    });
    Running::start(worker)
}

async fn publish_many(world: &World, posts: &Posts, count: usize) {
    for n in 0..count {
        world.publish(posts, &n.to_string(), 10_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_moved_or_gone_or_put_off_leaves_its_place() {
    type Edit = fn(&Posts, &str);
    let moved: Edit = |posts, key| posts.set(key, 20_000);
    let gone: Edit = |posts, key| posts.delete(key);
    let failing: Edit = |posts, _| posts.feel(Mood::Fails);
    for (edit, run) in [(moved, 50), (gone, 0), (failing, 50)] {
        let (world, posts) = world();
        let _worker = narrow(&world);
        publish_many(&world, &posts, 50).await;
        for n in 0..50 {
            edit(&posts, &n.to_string());
        }
        world.pass_until(10_900).await;
        assert_eq!(world.runs.count(), 0);
        assert_eq!(world.count(State::Running).await, 0);
        posts.feel(Mood::Well);
        world.settle().await;
        assert_eq!(world.runs.count(), run);
        // All four places are free again.
        for key in ["a", "b", "c", "d"] {
            posts.say(key, Expected::Run);
            world.publish(&posts, key, 100_000).await;
        }
        world.pass_until(100_001).await;
        assert_eq!(world.runs.count(), run + 4);
        assert_eq!(world.scheduler.stats().lost_claims, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn many_are_asked_about_in_one_call_of_at_most_a_batch() {
    let (world, posts) = world();
    let _worker = world.work();
    world.pass(ms(1)).await;
    for n in 0..1_200 {
        world.publish(&posts, &n.to_string(), 400_000).await;
    }
    world.pass_until(399_999).await;
    let hops: Vec<_> = posts.calls().iter().map(|call| call.keys.len()).collect();
    assert_eq!(hops, [500, 500, 200]);
    world.settle().await;
    assert_eq!(world.runs.times(), [400_000; 1_200]);
    let calls = posts.calls();
    assert!(calls.iter().all(|call| call.keys.len() <= 500));
    let asked: usize = calls.iter().map(|call| call.keys.len()).sum();
    assert_eq!(asked, 2_400);
    assert!(calls.len() <= 3 + 12, "{}", calls.len());
}

#[tokio::test(start_paused = true)]
async fn payloads_of_what_waits_for_room_are_not_read() {
    let (world, posts) = world_of(Setup::default(), |check| check.every(secs(30)));
    let policy = Policy::new().concurrency(1).prefetch(0);
    let _worker = Running::start(worker_that(&world, policy, |_| Box::pin(std::future::pending())));
    publish_many(&world, &posts, 50).await;
    world.pass_until(59_999).await;
    let before = posts.calls().len();
    world.pass_until(60_001).await;
    let asked: Vec<_> = posts.calls()[before..]
        .iter()
        .map(|call| call.keys.len())
        .collect();
    assert_eq!(asked, [49]);
    assert_eq!(world.store.calls(Op::List).iter().sum::<usize>(), 0);
}
