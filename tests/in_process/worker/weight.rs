//! Payloads are bounded, one by one and in all that a worker holds.

use delayline::{Error, NewTask, Outcome, Policy, Scheduler, State, Worker};

use crate::support::{KIND, Running, World, ms, secs};
use crate::worker::outcomes::worker_that;

#[tokio::test(start_paused = true)]
async fn a_payload_above_the_limit_is_refused_by_name() {
    let world = World::new();
    let fits = NewTask::from_bytes(KIND, vec![0; 1 << 20]);
    world.scheduler.schedule(fits).await.unwrap();
    let larger = || NewTask::from_bytes(KIND, vec![0; (1 << 20) + 1]);
    let error = world.scheduler.schedule(larger()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "payload is \"1048577 bytes\": allowed are up to 1048576 bytes (SchedulerBuilder::payload_limit)"
    );
    let lenient = Scheduler::builder(world.store.clone())
        .clock(world.clock.clone())
        .payload_limit(2 << 20)
        .build()
        .unwrap();
    lenient.schedule(larger()).await.unwrap();
    let headed = NewTask::new(KIND, &1).header("trace", "x".repeat(70_000));
    let error = world.scheduler.schedule(headed).await.unwrap_err();
    assert!(
        matches!(error, Error::Invalid { field: "headers", .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_holds_no_more_bytes_than_it_may_and_runs_all() {
    let world = World::new();
    let payload = 100_000;
    let clock = world.clock.clone();
    let handler = move |_: delayline::Context| {
        let clock = clock.clone();
        let ended: crate::support::Answered = Box::pin(async move {
            clock.sleep(ms(10)).await;
            Ok(Outcome::Done)
        });
        ended
    };
    let tasks = (0..200).map(|_| NewTask::new(KIND, &"x".repeat(payload)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    let worker = worker_that(&world, Policy::new().concurrency(200), handler);
    let _worker = Running::start(worker.payload_memory(1_000_000));
    let mut most = 0;
    for _ in 0..2_000 {
        most = most.max(world.count(State::Running).await);
        world.pass(ms(1)).await;
    }
    world.settle().await;
    assert_eq!((world.runs.count(), world.count(State::Done).await), (200, 200));
    assert!((5..=11).contains(&most), "{most} were held at once");
}

#[tokio::test(start_paused = true)]
async fn a_past_time_does_not_use_up_a_deadline() {
    let world = World::new();
    let policy = Policy::new().deadline(secs(3_600));
    let handler = world.runs.handler(&world.store_clock);
    let _worker = Running::start(Worker::new(&world.scheduler).handle_with(KIND, policy, handler));
    let past = crate::support::at(-7_200_000);
    world
        .scheduler
        .schedule(NewTask::new(KIND, &1).at(past))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!((world.runs.count(), world.count(State::Done).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_a_name_that_a_store_cannot_keep_is_refused() {
    let world = World::new();
    for name in ["a\0b".to_owned(), "x".repeat(256)] {
        let error = world.worker().name(name).run().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { field: "name", .. }), "{error}");
    }
}
