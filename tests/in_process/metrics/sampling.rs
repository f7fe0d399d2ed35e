//! What only the store knows.

use delayline::{NewTask, Outcome, Policy, Worker, defaults};

use crate::metrics::recorder::{Recorder, of};
use crate::support::{KIND, Op, Running, World, at, ms, secs};

const BOUNDS: [&str; 8] = ["5", "60", "300", "900", "3600", "14400", "28800", "86400"];

#[tokio::test(start_paused = true)]
async fn tasks_are_counted_by_kind_and_state_and_by_when_they_are_due() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    world.scheduler.pause("paused", None, "").await.unwrap();
    let delays = [0, 2, 4, 50, 250, 850, 3_500, 14_000, 28_000, 86_000, 90_000];
    let tasks = delays.map(|delay| NewTask::new(KIND, &1).after(secs(delay)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    let later = NewTask::new("later", &1).key("1").after(secs(1_000_000));
    world.scheduler.schedule(later).await.unwrap();
    world.claim_elsewhere("other").await;
    world.pass(ms(3_500)).await;
    world.scheduler.sample_metrics().await.unwrap();
    let recorded = recorder.recorded();
    let labels = |kind: &str, state: &str| format!("{kind} {state}");
    assert_eq!(
        recorded.levels("delayline.tasks"),
        of([
            (labels(KIND, "scheduled"), 10.0),
            (labels(KIND, "running"), 1.0),
            (labels(KIND, "dead"), 0.0),
            (labels("later", "scheduled"), 1.0),
            (labels("later", "running"), 0.0),
            (labels("later", "dead"), 0.0),
        ])
    );
    let due = recorded.levels("delayline.tasks.due");
    let of_kind = |kind: &str| BOUNDS.map(|bound| due[&format!("{bound} {kind}")]);
    assert_eq!(of_kind(KIND), [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    assert_eq!(of_kind("later"), [0.0; 8]);
    assert_eq!(due.len(), 16);
    assert_eq!(
        recorded.levels("delayline.overdue.oldest"),
        of([(KIND, 1.5), ("later", 0.0)])
    );
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_now_and_then_and_what_is_gone_is_told_as_gone() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let schedule = async |kind: &str| {
        let task = NewTask::new(kind, &1).key("1").after(secs(3_600));
        world.scheduler.schedule(task).await.unwrap();
    };
    let scheduled = async || {
        world.scheduler.sample_metrics().await.unwrap();
        let mut recorded = recorder.recorded().levels("delayline.tasks");
        recorded.retain(|labels, _| labels.ends_with("scheduled"));
        recorded
    };
    schedule(KIND).await;
    assert_eq!(scheduled().await, of([(format!("{KIND} scheduled"), 1.0)]));
    let asked = world.store.calls(Op::List).len();
    assert!(world.scheduler.cancel((KIND, "1")).await.unwrap().is_done());
    schedule("another").await;
    world.pass(defaults::SAMPLE_EVERY - ms(1)).await;
    world.scheduler.sample_metrics().await.unwrap();
    assert_eq!(world.store.calls(Op::List).len(), asked);
    world.pass(ms(1)).await;
    assert_eq!(
        scheduled().await,
        of([
            (format!("{KIND} scheduled"), 0.0),
            ("another scheduled".to_owned(), 1.0)
        ])
    );
    // A store that is slow is asked more rarely.
    world.pass(defaults::SAMPLE_EVERY).await;
    world.store.take(ms(500));
    let before = world.now();
    world.scheduler.sample_metrics().await.unwrap();
    let took = world.now() - before;
    assert!((501..=3_000).contains(&took), "{took}");
    let asked = world.store.calls(Op::List).len();
    world.pass(ms(19 * took as u64 - 1)).await;
    world.scheduler.sample_metrics().await.unwrap();
    assert_eq!(world.store.calls(Op::List).len(), asked);
    world.pass(ms(1)).await;
    world.scheduler.sample_metrics().await.unwrap();
    assert!(world.store.calls(Op::List).len() > asked);
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_is_not_overdue_until_it_is_resumed() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    for kind in ["until", "paused", "late"] {
        let task = NewTask::new(kind, &1).after(secs(2));
        world.scheduler.schedule(task).await.unwrap();
    }
    let oldest = async || {
        world.pass(secs(30)).await;
        world.scheduler.sample_metrics().await.unwrap();
        let recorded = recorder.recorded().levels("delayline.overdue.oldest");
        ["until", "paused", "late"].map(|kind| recorded[kind])
    };
    world
        .scheduler
        .pause("until", Some(at(50_000)), "")
        .await
        .unwrap();
    world.scheduler.pause("paused", None, "").await.unwrap();
    assert_eq!(oldest().await, [0.0, 0.0, 28.0]);
    assert_eq!(oldest().await, [58.0, 0.0, 58.0]);
    assert!(world.scheduler.resume("paused").await.unwrap());
    assert_eq!(oldest().await, [88.0, 88.0, 88.0]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_late_since_its_planned_time_and_not_since_its_next_attempt() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let claims = world.scheduler.claims();
    let take = async || claims.take(&[KIND.into()], 1, secs(1_000), "a").await.unwrap()[0].claim;
    let oldest = async || {
        world.pass(secs(30)).await;
        world.scheduler.sample_metrics().await.unwrap();
        let recorded = recorder.recorded();
        ["overdue", "failing"].map(|what| recorded.levels(&format!("delayline.{what}.oldest"))[KIND].floor())
    };
    world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    // The attempt fails, and so does the next one.
    assert!(
        claims
            .retry(take().await, "no paper", Some(secs(40)))
            .await
            .unwrap()
    );
    assert_eq!(oldest().await, [0.0, 30.0]);
    // Due again, and waiting; then under way.
    assert_eq!(oldest().await, [0.0, 60.0]);
    let claim = take().await;
    assert_eq!(oldest().await, [0.0, 90.0]);
    assert!(claims.retry(claim, "no paper", Some(secs(3_600))).await.unwrap());
    assert_eq!(oldest().await, [0.0, 120.0]);
    world.scheduler.pause(KIND, None, "").await.unwrap();
    assert_eq!(oldest().await, [0.0, 0.0]);
    assert!(world.scheduler.resume(KIND).await.unwrap());
    let _ = world
        .scheduler
        .run_now(world.every_row().await[0].id)
        .await
        .unwrap();
    assert!(claims.done(take().await).await.unwrap());
    assert_eq!(oldest().await, [0.0, 0.0]);
    // Put off as the caller wishes, which is no failure.
    world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    assert!(claims.snooze(take().await, secs(3_600)).await.unwrap());
    assert_eq!(oldest().await, [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_told_and_asked_again() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    world.store.fail(Op::List, 1);
    world.scheduler.sample_metrics().await.unwrap_err();
    assert!(recorder.recorded().levels("delayline.tasks").is_empty());
    world.scheduler.sample_metrics().await.unwrap();
    assert_eq!(recorder.recorded().levels("delayline.tasks").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_kinds_is_told_apart_and_those_that_are_handled_come_first() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    // By its name the last of all.
    let handler = |_: u64, _| async { Ok(Outcome::Done) };
    let worker = Worker::new(&world.scheduler).handle_with("~handled", Policy::new(), handler);
    let _worker = Running::start(worker);
    world.pass(ms(1)).await;
    let more = 20;
    let kind = |n: usize| format!("kind-{n:05}");
    let tasks = (0..defaults::METRIC_KINDS + more).map(|n| NewTask::new(kind(n), &1).after(secs(30)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    let handled = NewTask::new("~handled", &1).after(secs(40));
    world.scheduler.schedule(handled).await.unwrap();
    world.scheduler.sample_metrics().await.unwrap();
    let tasks = recorder.recorded().levels("delayline.tasks");
    let own = |kind: &str| tasks.get(&format!("{kind} scheduled")).copied();
    assert_eq!(own("~handled"), Some(1.0));
    assert_eq!(own(&kind(defaults::METRIC_KINDS - 2)), Some(1.0));
    assert_eq!(own(&kind(defaults::METRIC_KINDS - 1)), None);
    assert_eq!(own("other"), Some(more as f64 + 1.0));
    assert_eq!(tasks.len(), 3 * (defaults::METRIC_KINDS + 1));
    // What the store has of others goes on, and is recorded together.
    world.pass(secs(45)).await;
    world.scheduler.sample_metrics().await.unwrap();
    let recorded = recorder.recorded();
    assert_eq!(recorded.levels("delayline.tasks")["~handled scheduled"], 0.0);
    assert_eq!(recorded.levels("delayline.overdue.oldest")["other"], 15.0);
    assert_eq!(recorded.counts("delayline.attempts"), of([("~handled done", 1)]));
}
