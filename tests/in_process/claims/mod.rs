//! Claims without a worker: taken, waited for and ended by a process on behalf of other programs, which run the tasks.
//!
//! On virtual time, over a store in memory: every moment is asserted to the millisecond.

mod attempts;
mod ending;
mod leaving;
mod pausing;
mod sharing;
mod taking;
mod waiting;

use std::time::Duration;

use delayline::claims::{Claimed, Claims};
use delayline::{Kind, NewTask, Task};

use crate::support::{KIND, World, secs};

const LEASE: Duration = secs(30);

fn kinds(kinds: &[&str]) -> Vec<Kind> {
    kinds.iter().map(|&kind| kind.into()).collect()
}

/// Takes up to `max` tasks of [`KIND`].
async fn take(claims: &Claims, max: usize) -> Vec<Claimed> {
    claims.take(&kinds(&[KIND]), max, LEASE, "a").await.unwrap()
}

/// Waits up to `max_wait` for one task of [`KIND`].
async fn wait(claims: &Claims, max_wait: Duration) -> Vec<Claimed> {
    claims
        .wait(&kinds(&[KIND]), 1, LEASE, "a", max_wait)
        .await
        .unwrap()
}

/// Schedules one task of [`KIND`] for `delay` from now.
async fn schedule(world: &World, delay: Duration) -> Task {
    let task = NewTask::new(KIND, &1).after(delay);
    world.scheduler.schedule(task).await.unwrap().task().clone()
}

/// A task that is due, and its claim.
async fn claimed(world: &World) -> Claimed {
    schedule(world, Duration::ZERO).await;
    let mut taken = take(&world.scheduler.claims(), 1).await;
    assert_eq!(taken.len(), 1);
    taken.remove(0)
}
