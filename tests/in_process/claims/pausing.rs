//! Claims of kinds that are paused.

use delayline::defaults;

use super::{LEASE, kinds, schedule, take, wait};
use crate::support::{KIND, World, at, secs};

#[tokio::test(start_paused = true)]
async fn nothing_of_a_paused_kind_is_given_and_everything_of_the_others() {
    let world = World::new();
    let claims = world.scheduler.claims();
    schedule(&world, secs(0)).await;
    let other = delayline::NewTask::new("other", &1);
    world.scheduler.schedule(other).await.unwrap();
    world.another_scheduler().pause(KIND, None, "").await.unwrap();
    assert_eq!(take(&claims, 10).await, []);
    let taken = claims
        .take(&kinds(&[KIND, "other"]), 10, LEASE, "a")
        .await
        .unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].task.kind, "other".into());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_paused_kind_is_served_when_it_is_resumed() {
    let world = World::new();
    schedule(&world, secs(0)).await;
    let operator = world.another_scheduler();
    operator.pause(KIND, None, "").await.unwrap();
    let claims = world.scheduler.claims();
    let waiting = tokio::spawn(async move { wait(&claims, secs(60)).await });
    world.pass_until(10_000).await;
    assert!(!waiting.is_finished());
    operator.resume(KIND).await.unwrap();
    world.pass(defaults::PAUSE_SEEN).await;
    assert!(waiting.is_finished());
    let taken = waiting.await.unwrap();
    assert_eq!((taken.len(), taken[0].task.due_at), (1, at(0)));
}
