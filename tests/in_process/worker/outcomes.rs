//! What a handler answers, and what becomes of its task.

use std::collections::BTreeMap;
use std::fmt;

use delayline::{Context, Failure, NewTask, Outcome, Policy, State, Task, Worker};
use serde::{Deserialize, Serialize};

use crate::support::{Answered, KIND, Running, World, at, ms, secs};

/// A worker whose handler does as `what` says, by `policy`.
pub(crate) fn worker_that(
    world: &World,
    policy: Policy,
    what: impl Fn(Context) -> Answered + Send + Sync + 'static,
) -> Worker {
    let handler = world.runs.handler_that(&world.store_clock, what);
    Worker::new(&world.scheduler).handle_with(KIND, policy, handler)
}

fn answering(outcome: fn(u32) -> Result<Outcome, Failure>) -> impl Fn(Context) -> Answered + Send + Sync {
    move |context| Box::pin(async move { outcome(context.attempt()) })
}

/// A pause of always nothing.
fn at_once() -> Policy {
    Policy::new().backoff(ms(0), ms(0))
}

async fn schedule(world: &World, task: NewTask) -> Task {
    world.scheduler.schedule(task).await.unwrap().task().clone()
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u64,
    lines: BTreeMap<String, u32>,
}

fn order() -> Order {
    Order {
        number: 7,
        lines: [("tea".to_owned(), 2)].into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_typed_handler_is_given_the_payload_and_its_context() {
    let world = World::new();
    let (send, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let worker =
        Worker::new(&world.scheduler)
            .name("w1")
            .handle(KIND, move |order: Order, context: Context| {
                let send = send.clone();
                async move {
                    send.send((order, context))?;
                    Ok(Outcome::Done)
                }
            });
    let _worker = Running::start(worker);
    let new = NewTask::new(KIND, &order())
        .key("order-7")
        .header("trace", "t1")
        .after(ms(100));
    let row = schedule(&world, new).await;
    let (given, context) = seen.recv().await.unwrap();
    assert_eq!(given, order());
    assert_eq!(
        (context.id(), context.key(), context.attempt()),
        (row.id, Some("order-7"), 1)
    );
    assert_eq!((context.due_at(), context.lateness()), (at(100), ms(0)));
    assert_eq!(context.payload(), serde_json::to_vec(&order()).unwrap());
    let task = context.task();
    assert_eq!(
        (task.state, task.version, task.owner.as_deref()),
        (State::Running, 2, Some("w1"))
    );
    assert_eq!(task.headers["trace"], "t1");
    world.settle().await;
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.version, row.attempt), (State::Done, 3, 1));
    assert_eq!((row.finished_at, &row.last_error), (Some(at(100)), &None));
    assert_eq!(world.scheduler.stats().done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_bytes_is_given_them_as_they_are() {
    let world = World::new();
    let (send, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let worker = Worker::new(&world.scheduler).handle_bytes(KIND, Policy::new(), move |context| {
        let send = send.clone();
        async move {
            send.send(context.payload().to_vec())?;
            Ok(Outcome::Done)
        }
    });
    let _worker = Running::start(worker);
    schedule(&world, NewTask::from_bytes(KIND, [0, 255, b'{'])).await;
    assert_eq!(seen.recv().await.unwrap(), [0, 255, b'{']);
    world.settle().await;
    assert_eq!(world.count(State::Done).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_decoded_is_tried_again_and_a_later_release_may_know_it() {
    let world = World::new();
    let old = Worker::new(&world.scheduler).handle(KIND, async |_: Order, _| unreachable!());
    let old = Running::start(old);
    let payload = r#"{"number": 7, "items": "s3cret"}"#;
    let row = schedule(&world, NewTask::from_bytes(KIND, payload)).await;
    world.pass(ms(1)).await;
    let failed = world.row(row.id).await;
    assert_eq!((failed.state, failed.attempt), (State::Scheduled, 1));
    let error = failed.last_error.unwrap();
    let expected = format!(
        "the payload of this {KIND} task is no in_process::worker::outcomes::Order: missing field \"lines\" (line 1, column 32)"
    );
    assert_eq!(error, expected);
    old.stop().await.unwrap();
    let new = async |_: serde_json::Value, _: Context| Ok(Outcome::Done);
    let _new = Running::start(Worker::new(&world.scheduler).handle(KIND, new));
    world.settle().await;
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Done, 2));
}

#[tokio::test(start_paused = true)]
async fn a_retry_comes_again_after_its_pause_and_keeps_the_reason_and_the_planned_time() {
    let world = World::new();
    let policy = Policy::new().backoff(secs(8), secs(8));
    let _worker = Running::start(worker_that(
        &world,
        policy,
        answering(|attempt| {
            Ok(if attempt == 1 {
                Outcome::Retry("the bank is closed".into())
            } else {
                Outcome::Done
            })
        }),
    ));
    let row = schedule(&world, NewTask::new(KIND, &1).after(ms(500))).await;
    world.pass(ms(501)).await;
    let waiting = world.row(row.id).await;
    assert_eq!(
        (waiting.state, waiting.attempt, waiting.version),
        (State::Scheduled, 1, 3)
    );
    assert_eq!(waiting.last_error.as_deref(), Some("the bank is closed"));
    assert_eq!((waiting.planned_at, waiting.finished_at), (at(500), None));
    assert!(
        waiting.due_at > at(500) && waiting.due_at <= at(8_500),
        "{waiting:?}"
    );
    world.settle().await;
    let due = waiting.due_at.millis_since(at(0));
    assert_eq!(world.runs.times(), [500, due]);
    assert_eq!(world.runs.all()[1].task.attempt, 2);
    let stats = world.scheduler.stats();
    assert_eq!((stats.retried, stats.done, stats.claimed_by_sweep), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_time_is_a_failed_attempt_whose_pause_begins_then() {
    let world = World::new();
    let policy = Policy::new().backoff(secs(8), secs(8)).max_attempts(2);
    let _worker = Running::start(worker_that(
        &world,
        policy,
        answering(|_| Ok(Outcome::RetryAfter("the bank is closed".into(), secs(60)))),
    ));
    let row = schedule(&world, NewTask::new(KIND, &1).after(ms(500))).await;
    world.pass(ms(501)).await;
    let waiting = world.row(row.id).await;
    assert_eq!((waiting.state, waiting.attempt), (State::Scheduled, 1));
    assert_eq!(waiting.last_error.as_deref(), Some("the bank is closed"));
    assert!(
        waiting.due_at >= at(60_500) && waiting.due_at <= at(68_500),
        "{waiting:?}"
    );
    world.settle().await;
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 2));
    assert_eq!(world.runs.times(), [500, waiting.due_at.millis_since(at(0))]);
    assert_eq!(world.scheduler.stats().retried, 1);
}

/// An error with two causes.
#[derive(Debug)]
struct Layered(u8);

impl fmt::Display for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {}", self.0)
    }
}

impl std::error::Error for Layered {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.0 {
            1 => Some(&Layered(2)),
            2 => Some(&Layered(3)),
            _ => None,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_a_failed_attempt_and_is_kept_with_its_causes() {
    let world = World::new();
    let worker = worker_that(&world, at_once().max_attempts(2), |_| {
        Box::pin(async {
            Err(Layered(1))?;
            Ok(Outcome::Done)
        })
    });
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1)).await;
    world.settle().await;
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 2));
    assert_eq!(row.last_error.as_deref(), Some("layer 1: layer 2: layer 3"));
    assert_eq!(world.runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_text_is_kept_up_to_a_limit_and_cut_between_characters() {
    let world = World::new();
    let worker = worker_that(&world, at_once().max_attempts(1), |_| {
        Box::pin(async { Err(format!("x{}", "é".repeat(5_000)).into()) })
    });
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1)).await;
    world.settle().await;
    let error = world.row(row.id).await.last_error.unwrap();
    assert_eq!(error, format!("x{}…", "é".repeat(999)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_attempt_and_its_message_is_kept() {
    // The third is raised before there is a future.
    let raised: [fn(Context) -> Answered; 3] = [
        |_| Box::pin(async { std::panic::resume_unwind(Box::new("plain")) }),
        |context| {
            let text = format!("attempt {}", context.attempt());
            Box::pin(async move { std::panic::resume_unwind(Box::new(text)) })
        },
        |_| std::panic::resume_unwind(Box::new("at once")),
    ];
    for (what, message) in raised.into_iter().zip(["plain", "attempt 2", "at once"]) {
        let world = World::new();
        let _worker = Running::start(worker_that(&world, at_once().max_attempts(2), what));
        let row = schedule(&world, NewTask::new(KIND, &1)).await;
        world.settle().await;
        let row = world.row(row.id).await;
        assert_eq!((row.state, row.attempt), (State::Dead, 2));
        assert_eq!(row.last_error, Some(format!("panicked: {message}")));
        let stats = world.scheduler.stats();
        assert_eq!((stats.started, stats.retried, stats.dead), (2, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_snooze_gives_the_attempt_back_and_leaves_the_planned_time() {
    let world = World::new();
    let runs = world.runs.clone();
    let worker = worker_that(&world, at_once().max_attempts(1), move |_| {
        let nth = runs.count();
        Box::pin(async move {
            Ok(match nth {
                ..3 => Outcome::Snooze(ms(1_500)),
                3..5 => Outcome::SnoozeBecause("the printer is off".to_owned(), ms(1_500)),
                _ => Outcome::Done,
            })
        })
    });
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1).key("k").after(ms(100))).await;
    world.pass(ms(101)).await;
    let snoozed = world.row(row.id).await;
    assert_eq!(
        (snoozed.state, snoozed.attempt, snoozed.version),
        (State::Scheduled, 0, 3)
    );
    assert_eq!((snoozed.due_at, snoozed.planned_at), (at(1_600), at(100)));
    assert_eq!(snoozed.last_error, None);
    world.pass_until(3_101).await;
    let why = world.row(row.id).await.last_error;
    assert_eq!(why.as_deref(), Some("the printer is off"));
    world.settle().await;
    assert_eq!(world.runs.times(), [100, 1_600, 3_100, 4_600, 6_100]);
    assert!(world.runs.all().iter().all(|run| run.task.attempt == 1));
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Done, 1));
    let stats = world.scheduler.stats();
    assert_eq!((stats.snoozed, stats.done, stats.retried), (4, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn again_is_the_same_task_under_the_same_key_begun_anew() {
    let world = World::new();
    let runs = world.runs.clone();
    let worker = worker_that(&world, at_once().max_attempts(2), move |_| {
        let nth = runs.count();
        Box::pin(async move {
            match nth {
                1 => Err("failed once".into()),
                2 => Ok(Outcome::Again(secs(60))),
                _ => Ok(Outcome::Done),
            }
        })
    });
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1).key("k").after(ms(100))).await;
    world.pass(ms(150)).await;
    let again = world.row((KIND, "k")).await;
    assert_eq!(
        (again.id, again.state, again.attempt),
        (row.id, State::Scheduled, 0)
    );
    assert_eq!((again.due_at, again.planned_at), (at(60_100), at(60_100)));
    assert_eq!((&again.last_error, again.hop), (&None, 0));
    world.settle().await;
    assert_eq!(world.runs.times(), [100, 100, 60_100]);
    assert_eq!(world.runs.all()[2].task.attempt, 1);
    assert_eq!(world.scheduler.stats().done, 2);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_task_is_dead_at_once_with_its_reason() {
    let world = World::new();
    let worker = worker_that(
        &world,
        Policy::new(),
        answering(|_| Ok(Outcome::Discard("no such order".into()))),
    );
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1)).await;
    world.settle().await;
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt, row.wake_at), (State::Dead, 1, None));
    assert_eq!(row.last_error.as_deref(), Some("no such order"));
    assert_eq!(row.finished_at, Some(at(0)));
    assert_eq!(world.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_the_longest_and_differ_from_task_to_task() {
    let world = World::new();
    let policy = Policy::new().backoff(secs(1), secs(6)).max_attempts(6);
    let _worker = Running::start(worker_that(&world, policy, answering(|_| Err("no".into()))));
    let tasks = (0..40).map(|n| NewTask::new(KIND, &n));
    let answers = world.scheduler.schedule_all(tasks).await.unwrap();
    world.settle().await;
    for attempt in 0..5 {
        let longest = [1_000, 2_000, 4_000, 6_000, 6_000][attempt];
        let mut pauses: Vec<_> = answers
            .iter()
            .map(|answer| {
                let runs = world.runs.of(answer.task().id);
                assert_eq!(runs.len(), 6);
                runs[attempt + 1].at - runs[attempt].at
            })
            .collect();
        pauses.sort_unstable();
        assert!((0..=longest).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses[39] <= longest && pauses[39] > longest / 2, "{pauses:?}");
        pauses.dedup();
        assert!(
            pauses.len() > 30,
            "tasks that failed together come back together: {pauses:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_dead_after_the_attempts_of_its_kind_or_of_its_own() {
    let world = World::new();
    let worker = worker_that(&world, at_once().max_attempts(3), answering(|_| Err("no".into())));
    let _worker = Running::start(worker);
    for (own, attempts) in [(None, 3), (Some(1), 1), (Some(5), 5)] {
        let mut new = NewTask::new(KIND, &1);
        if let Some(own) = own {
            new = new.max_attempts(own);
        }
        let row = schedule(&world, new).await;
        world.settle().await;
        let runs = world.runs.of(row.id);
        let counted: Vec<_> = runs.iter().map(|run| run.task.attempt).collect();
        assert_eq!(counted, (1..=attempts).collect::<Vec<_>>());
        let row = world.row(row.id).await;
        assert_eq!((row.state, row.attempt), (State::Dead, attempts));
        assert_eq!(row.last_error.as_deref(), Some("no"));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_after_its_deadline_and_it_was_no_attempt() {
    let world = World::new();
    // No worker until it is too late for the first, just in time for the second.
    let first = schedule(&world, NewTask::new(KIND, &1).at(at(1_000))).await;
    let second = schedule(&world, NewTask::new(KIND, &1).at(at(1_001))).await;
    world.pass_until(6_001).await;
    let policy = Policy::new().deadline(secs(5));
    let _worker = Running::start(worker_that(&world, policy, answering(|_| Ok(Outcome::Done))));
    world.settle().await;
    assert_eq!(world.runs.ids(), [second.id]);
    assert_eq!(world.row(second.id).await.state, State::Done);
    let dead = world.row(first.id).await;
    assert_eq!((dead.state, dead.attempt), (State::Dead, 0));
    let error = dead.last_error.unwrap();
    assert!(error.contains("deadline") && error.contains("5s"), "{error}");
    let stats = world.scheduler.stats();
    assert_eq!((stats.started, stats.dead), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_planned_for_after_the_deadline() {
    let world = World::new();
    let policy = Policy::new()
        .backoff(secs(4), secs(4))
        .deadline(secs(6))
        .max_attempts(1_000);
    let _worker = Running::start(worker_that(&world, policy, answering(|_| Err("no".into()))));
    let rows = world
        .scheduler
        .schedule_all((0..20).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    world.settle().await;
    assert!(world.runs.all().iter().all(|run| run.at <= 6_000));
    for row in rows {
        let row = world.row(row.task().id).await;
        assert_eq!(row.state, State::Dead);
        let error = row.last_error.unwrap();
        assert!(
            error.starts_with("no time for another attempt") && error.ends_with(": no"),
            "{error}"
        );
        // It died with its last attempt, not by waiting for a time at which it could not start.
        let last = world.runs.of(row.id).last().unwrap().at;
        assert_eq!(row.finished_at, Some(at(last)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_snooze_does_not_move_the_deadline() {
    let world = World::new();
    let policy = Policy::new().deadline(secs(6));
    let outcome = |_| Ok(Outcome::Snooze(secs(4)));
    let _worker = Running::start(worker_that(&world, policy, answering(outcome)));
    let row = schedule(&world, NewTask::new(KIND, &1)).await;
    world.settle().await;
    assert_eq!(world.runs.times(), [0, 4_000]);
    assert_eq!(world.row(row.id).await.state, State::Dead);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_its_time_is_stopped_and_has_failed() {
    let world = World::new();
    let ended = crate::worker::leases::Ended::default();
    let policy = at_once().execution_timeout(secs(2)).max_attempts(2);
    let (clock, guard) = (world.clock.clone(), ended.clone());
    let worker = worker_that(&world, policy, move |_| {
        let (clock, guard) = (clock.clone(), guard.clone());
        Box::pin(async move {
            let _guard = guard.guard(&clock);
            clock.sleep(secs(3_600)).await;
            Ok(Outcome::Done)
        })
    });
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1)).await;
    world.settle().await;
    assert_eq!(world.runs.times(), [0, 2_000]);
    assert_eq!(ended.times(), [2_000, 4_000]);
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 2));
    assert_eq!(
        row.last_error.as_deref(),
        Some("stopped after 2s, its execution timeout")
    );
}

#[tokio::test(start_paused = true)]
async fn a_redriven_task_runs_with_all_its_attempts_again() {
    let world = World::new();
    let worker = worker_that(&world, at_once().max_attempts(2), answering(|_| Err("no".into())));
    let _worker = Running::start(worker);
    let row = schedule(&world, NewTask::new(KIND, &1)).await;
    world.settle().await;
    world.pass_until(5_000).await;
    assert!(world.scheduler.redrive(row.id).await.unwrap().is_done());
    world.settle().await;
    assert_eq!(world.runs.times(), [0, 0, 5_000, 5_000]);
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 2));
    assert_eq!(world.scheduler.stats().dead, 2);
}

#[tokio::test(start_paused = true)]
async fn the_alarm_is_raised_once_for_each_death_with_the_row_as_it_ended() {
    let world = World::new();
    let (send, mut alarms) = tokio::sync::mpsc::unbounded_channel();
    let policy = at_once().max_attempts(2).deadline(secs(60));
    let worker = worker_that(&world, policy, |context| {
        let discarded = context.key() == Some("discarded");
        Box::pin(async move {
            if discarded {
                return Ok(Outcome::Discard("by name".into()));
            }
            Err("no".into())
        })
    });
    let worker = worker
        .name("w1")
        .on_dead(move |task| send.send(task.clone()).unwrap());
    schedule(&world, NewTask::new(KIND, &1).key("too late").at(at(0))).await;
    world.pass_until(61_000).await;
    let _worker = Running::start(worker);
    schedule(&world, NewTask::new(KIND, &1).key("tried").at(at(62_000))).await;
    schedule(&world, NewTask::new(KIND, &1).key("discarded").at(at(63_000))).await;
    world.settle().await;
    for key in ["too late", "tried", "discarded"] {
        let alarm = alarms.try_recv().unwrap();
        assert_eq!(alarm, world.row((KIND, key)).await);
        assert_eq!((alarm.state, alarm.wake_at), (State::Dead, None));
        assert!(alarm.last_error.is_some() && alarm.finished_at.is_some());
    }
    world.pass(secs(100)).await;
    assert!(alarms.try_recv().is_err(), "once each");
    assert_eq!(world.scheduler.stats().dead, 3);
}

#[tokio::test(start_paused = true)]
async fn an_alarm_that_panics_ends_nothing_else() {
    let world = World::new();
    let worker = worker_that(
        &world,
        at_once(),
        answering(|_| Ok(Outcome::Discard("no".into()))),
    );
    let worker = worker.on_dead(|_| std::panic::resume_unwind(Box::new("in the alarm")));
    let worker = Running::start(worker);
    for _ in 0..3 {
        schedule(&world, NewTask::new(KIND, &1)).await;
        world.settle().await;
    }
    assert_eq!(world.count(State::Dead).await, 3);
    worker.stop().await.unwrap();
}
