//! What a worker does.

use delayline::testing::Faults;
use delayline::{NewTask, Outcome, Policy, State, Worker};

use crate::metrics::recorder::{Recorder, of};
use crate::support::{KIND, Running, World, ms, secs};

/// A worker whose handler takes a quarter of a second, and then does as its payload says; the first time only, where it says
/// so.
fn worker(world: &World, policy: Policy) -> Worker {
    let (runs, clock) = (world.runs.clone(), world.clock.clone());
    let handler = world.runs.handler_that(&world.store_clock, move |context| {
        let word: String = serde_json::from_slice(context.payload()).unwrap();
        let first = runs.of(context.id()).len() == 1;
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(ms(250)).await;
            match word.as_str() {
                "fail" => Err("no".into()),
                "snooze" if first => Ok(Outcome::Snooze(ms(100))),
                "again" if first => Ok(Outcome::Again(ms(100))),
                "discard" => Ok(Outcome::Discard("by name".into())),
                _ => Ok(Outcome::Done),
            }
        })
    });
    Worker::new(&world.scheduler).handle_with(KIND, policy, handler)
}

async fn schedule(world: &World, word: &str, delay: u64) {
    let task = NewTask::new(KIND, word).after(ms(delay));
    world.scheduler.schedule(task).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn attempts_are_told_by_what_came_of_them_with_how_late_and_how_long_they_were() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::with_levels("1s");
    let policy = Policy::new().backoff(ms(0), ms(0)).max_attempts(2);
    let _worker = Running::start(worker(&world, policy));
    world.pass(ms(1)).await;
    schedule(&world, "done", 2_500).await; // two levels, a hop between them, and one to the precise backend
    for word in ["fail", "snooze", "again", "discard"] {
        schedule(&world, word, 10).await;
    }
    let cancelled = NewTask::new(KIND, "done").key("c").after(ms(1_500));
    world.scheduler.schedule(cancelled).await.unwrap();
    assert!(world.scheduler.cancel((KIND, "c")).await.unwrap().is_done());
    world.settle().await;
    let recorded = recorder.recorded();
    let kind = |word: &str| format!("{KIND} {word}");
    assert_eq!(
        recorded.counts("delayline.attempts"),
        of([
            (kind("done"), 3),
            (kind("again"), 1),
            (kind("snooze"), 1),
            (kind("retry"), 1),
            (kind("dead"), 2),
        ])
    );
    let process = |word: &str| format!("{KIND} process delayline {word}");
    assert_eq!(
        recorded.millis("messaging.process.duration"),
        of([
            (process("done"), vec![250; 3]),
            (process("again"), vec![250]),
            (process("snooze"), vec![250]),
            (process("retry"), vec![250]),
            (process("dead"), vec![250; 2]),
        ])
    );
    assert_eq!(
        recorded.millis("delayline.task.lateness"),
        of([(kind("precise"), vec![0; 8])])
    );
    assert_eq!(
        recorded.counts("delayline.wakeups"),
        of([
            // What became of it, then the route.
            ("sent carrier", 3),
            ("early carrier", 2),
            ("stale carrier", 1),
            ("sent precise", 8),
            ("claimed precise", 8),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn what_brought_a_task_is_told_with_how_late_it_was() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::with_levels("1s");
    let losing = Faults {
        lose: 100,
        ..Faults::default()
    };
    world.precise.set_faults(losing);
    schedule(&world, "done", 0).await;
    world.pass(ms(40)).await;
    // It was due before there was a worker, and its wake-up is not overdue yet.
    let _worker = Running::start(worker(&world, Policy::new()));
    world.settle().await;
    let started = |word: &str| format!("{KIND} {word}");
    let recorded = recorder.recorded();
    assert_eq!(
        recorded.millis("delayline.task.lateness"),
        of([(started("room"), vec![40])])
    );
    schedule(&world, "done", 1_000).await;
    world.settle().await;
    let recorded = recorder.recorded();
    assert_eq!(
        recorded.millis("delayline.task.lateness"),
        of([(started("carrier"), vec![0])])
    );
    // Its wake-up is lost.
    schedule(&world, "done", 500).await;
    world.settle().await;
    let recorded = recorder.recorded();
    let late = recorded.millis("delayline.task.lateness");
    let [late] = late[&started("sweep")][..] else {
        panic!("{late:?}")
    };
    assert!((1..=1_000).contains(&late), "{late}");
    assert_eq!(
        recorded.counts("delayline.wakeups"),
        of([("sent precise", 1), ("claimed sweep", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn wake_ups_that_no_backend_takes_are_told_by_their_route() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::with_levels("1s");
    let refusing = Faults {
        refuse: 100,
        ..Faults::default()
    };
    world.levels.as_ref().unwrap().set_faults(refusing);
    world.precise.set_faults(refusing);
    schedule(&world, "done", 1_000).await;
    world.pass(ms(1)).await;
    assert_eq!(
        recorder.recorded().counts("delayline.wakeups"),
        of([("rerouted carrier", 1), ("left precise", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_waits_and_what_is_not_started_is_released() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let worker = Running::start(worker(&world, Policy::new().concurrency(1).prefetch(1)));
    world.pass(ms(1)).await;
    for _ in 0..4 {
        schedule(&world, "done", 100).await;
    }
    world.pass(ms(101)).await;
    worker.stop().await.unwrap();
    let recorded = recorder.recorded();
    assert_eq!(
        recorded.counts("delayline.wakeups"),
        of([
            ("sent precise", 4),
            ("claimed precise", 2),
            ("waiting precise", 2)
        ])
    );
    assert_eq!(
        recorded.counts("delayline.attempts"),
        of([(format!("{KIND} done"), 1), (format!("{KIND} released"), 1),])
    );
    assert_eq!(world.count(State::Scheduled).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_is_an_attempt_of_which_nothing_is_known() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let clock = world.clock.clone();
    let long = world.runs.handler_that(&world.store_clock, move |_| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(secs(60)).await;
            Ok(Outcome::Done)
        })
    });
    let worker = Worker::new(&world.scheduler).handle_with(KIND, Policy::new(), long);
    let _worker = Running::start(worker);
    world.pass(ms(1)).await;
    schedule(&world, "done", 100).await;
    world.pass(secs(1)).await;
    // Another worker has it.
    world.expire_leases(secs(60)).await;
    world.claim_elsewhere("other").await;
    world.pass(secs(30)).await;
    let recorded = recorder.recorded();
    assert_eq!(
        recorded.counts("delayline.attempts"),
        of([(format!("{KIND} lost"), 1)])
    );
    let took = recorded.millis("messaging.process.duration");
    assert_eq!(took.len(), 1, "{took:?}");
    assert!(took.contains_key(&format!("{KIND} process delayline lost")));
}
