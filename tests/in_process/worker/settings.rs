//! What a worker cannot run with is refused by name before anything starts.

use delayline::{Outcome, Policy, Worker};

use crate::support::{KIND, World, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_run_is_refused_by_field_value_and_what_is_allowed() {
    let world = World::new();
    let new = || Worker::new(&world.scheduler);
    let with = |policy| new().handle_with(KIND, policy, async |(), _| Ok(Outcome::Done));
    for (worker, field, value, allowed) in [
        (
            world.worker().handle(KIND, async |(), _| Ok(Outcome::Done)),
            "kind",
            KIND,
            "one handler a kind",
        ),
        (
            new().handle("", async |(), _| Ok(Outcome::Done)),
            "kind",
            "\"\"",
            "1 to 100 bytes",
        ),
        (new().lease(ms(999)), "lease", "999ms", "1 s or more"),
        (new().lease(std::time::Duration::MAX), "lease", "s", "up to a day"),
        (new().sweep_every(ms(0)), "sweep_every", "0s", "more than zero"),
        (
            with(Policy::new().max_attempts(0)),
            "max_attempts",
            "0",
            "1 or more",
        ),
        (
            with(Policy::new().concurrency(0)),
            "concurrency",
            "0",
            "1 or more",
        ),
        (
            with(Policy::new().execution_timeout(ms(0))),
            "execution_timeout",
            "0s",
            "more than zero",
        ),
        (
            with(Policy::new().backoff(secs(2), secs(1))),
            "backoff",
            "2s up to 1s",
            "at most the longest",
        ),
    ] {
        let text = worker.run().await.unwrap_err().to_string();
        assert!(text.starts_with(field), "{text}");
        assert!(text.contains(value) && text.contains(allowed), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_shortest_lease_and_no_handler_at_all_can_be_used() {
    let world = World::new();
    let worker = Worker::new(&world.scheduler).lease(secs(1)).sweep_every(ms(1));
    worker.run_until(world.clock.sleep(secs(1))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_of_a_policy_can_be_used() {
    let world = World::new();
    let longest = std::time::Duration::MAX;
    let policy = Policy::new()
        .deadline(longest)
        .execution_timeout(longest)
        .backoff(ms(0), longest);
    let worker = crate::worker::outcomes::worker_that(&world, policy, |context| {
        let attempt = context.attempt();
        Box::pin(async move {
            match attempt {
                1 => Err("no".into()),
                _ => Ok(Outcome::Snooze(std::time::Duration::MAX)),
            }
        })
    });
    let worker = worker.stop_timeout(longest).sweep_every(longest);
    let row = world
        .scheduler
        .schedule(delayline::NewTask::new(KIND, &1))
        .await
        .unwrap();
    worker.run_until(world.clock.sleep(secs(1))).await.unwrap();
    assert_eq!(world.runs.count(), 2);
    assert_eq!(world.row(row.task().id).await.due_at, delayline::Timestamp::MAX);
}
