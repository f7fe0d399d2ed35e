//! Kinds that are paused: their tasks wait, and nothing else does.

use std::sync::Arc;

use delayline::{Context, Kind, NewTask, Outcome, Policy, Scheduler, State, Task, Worker, defaults};

use crate::support::{KIND, Op, Running, World, at, ms, secs};
use crate::worker::leases::{Ended, schedule, working};
use crate::worker::outcomes::worker_that;

const OTHER: &str = "mail.send";

/// In milliseconds: how soon workers know.
fn seen() -> i64 {
    i64::try_from(defaults::PAUSE_SEEN.as_millis()).unwrap()
}

/// A worker of another process, with handlers of both kinds.
fn another(world: &World) -> Running {
    let handler = || world.runs.handler(&world.store_clock);
    let worker = Worker::new(&world.another_scheduler());
    Running::start(worker.handle(KIND, handler()).handle(OTHER, handler()))
}

async fn schedule_each(scheduler: &Scheduler, kind: &str, every: u64, count: u64) {
    let tasks = (1..=count).map(|number| NewTask::new(kind, &number).after(ms(number * every)));
    scheduler.schedule_all(tasks).await.unwrap();
}

fn started(world: &World, kind: &str) -> Vec<i64> {
    let runs = world.runs.all().into_iter();
    runs.filter(|run| run.task.kind == Kind::from(kind))
        .map(|run| run.at)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_paused_kind_wait_in_every_worker_until_it_is_resumed() {
    let world = World::new();
    let (_one, _other) = (another(&world), another(&world));
    for kind in [KIND, OTHER] {
        schedule_each(&world.scheduler, kind, 100, 100).await;
    }
    world.pass_until(2_950).await;
    let operator = world.another_scheduler();
    let paused = operator.pause(KIND, None, "the bank is down").await.unwrap();
    assert_eq!((paused.kind.as_str(), paused.since), (KIND, at(2_950)));
    assert_eq!((paused.until, paused.reason.as_str()), (None, "the bank is down"));
    world.pass_until(7_950).await;
    let before = started(&world, KIND);
    assert!(
        before.iter().all(|&start| start < 2_950 + seen()),
        "one started after all knew: {before:?}"
    );
    let waiting = world.count(State::Scheduled).await;
    assert_eq!(before.len() + waiting, 100, "none is held by a worker");
    assert_eq!(operator.paused().await.unwrap(), [paused]);

    assert!(operator.resume(KIND).await.unwrap());
    world.pass_until(7_950 + seen()).await;
    assert!(
        started(&world, KIND).len() >= 79,
        "all that were due by then have been started"
    );
    world.settle().await;
    assert_eq!(started(&world, KIND).len(), 100, "each once");
    // The other kind never noticed.
    let punctual: Vec<i64> = (1..=100).map(|number| number * 100).collect();
    assert_eq!(started(&world, OTHER), punctual);
    assert!(!operator.resume(KIND).await.unwrap(), "it is not paused any more");
    assert_eq!(operator.paused().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_by_itself_at_its_time_and_is_changed_by_another() {
    let world = World::new();
    world
        .scheduler
        .pause(KIND, Some(at(3_000)), "a short one")
        .await
        .unwrap();
    world
        .scheduler
        .pause(KIND, Some(at(5_000)), "longer")
        .await
        .unwrap();
    let paused = world.scheduler.paused().await.unwrap();
    assert_eq!((paused.len(), paused[0].until), (1, Some(at(5_000))));
    let _worker = world.work();
    schedule_each(&world.scheduler, KIND, 1, 3).await;
    world.pass_until(4_999).await;
    assert_eq!(world.runs.count(), 0);
    world.pass_until(5_000 + seen() / 2).await;
    assert_eq!(world.runs.count(), 3);
    assert_eq!(world.scheduler.paused().await.unwrap(), []);
    assert!(
        !world.scheduler.resume(KIND).await.unwrap(),
        "its row is gone with it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_in_advance_is_given_back_untouched_and_what_runs_goes_on() {
    let world = World::new();
    let ended = Ended::default();
    let one_at_a_time = Policy::new().concurrency(1).prefetch(10);
    let _worker = Running::start(worker_that(&world, one_at_a_time, working(&world, &ended)));
    let running = schedule(&world, 10).await;
    let queued: Vec<Task> = vec![schedule(&world, 1).await, schedule(&world, 1).await];
    world.pass_until(2_000).await;
    assert_eq!(world.count(State::Running).await, 3);
    world.scheduler.pause(KIND, None, "").await.unwrap();
    world.pass_until(12_000).await;
    // Nothing was to start meanwhile; when the first has ended, the next one would have.
    world.pass_until(12_000 + seen()).await;
    assert_eq!(ended.times(), [10_000]);
    assert_eq!(world.row(running.id).await.state, State::Done);
    for row in &queued {
        let row = world.row(row.id).await;
        assert_eq!((row.state, row.attempt, row.due_at), (State::Scheduled, 0, at(0)));
    }
    world.scheduler.resume(KIND).await.unwrap();
    world.settle().await;
    assert_eq!(world.runs.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_for_pauses_twice_a_second_by_a_busy_worker_and_never_by_an_idle_one() {
    let world = World::new();
    let _worker = world.work();
    schedule_each(&world.scheduler, KIND, 10, 1_000).await;
    world.pass_until(10_500).await;
    let asked = world.store.calls(Op::List).len();
    assert!((10..=22).contains(&asked), "{asked} calls in 10 s");
    assert!(
        world
            .runs
            .all()
            .iter()
            .all(|run| run.lateness < defaults::PRECISE_LATENESS),
        "no task waits for the answers"
    );
    world.pass(secs(3_600)).await;
    assert_eq!(world.store.calls(Op::List).len(), asked);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_while_the_store_does_not_say_what_is_paused() {
    for hangs in [false, true] {
        let world = World::new();
        let _worker = another(&world);
        schedule_each(&world.scheduler, OTHER, 1_000, 1).await;
        world.pass_until(5_000).await;
        assert_eq!(started(&world, OTHER), [1_000]);
        // A lock on the table, of one query: the rest goes on.
        if hangs {
            world.store.hold(Op::List);
        } else {
            world.store.fail(Op::List, 1_000);
        }
        // By a process that the store answers.
        let operator = world.another_scheduler_over(Arc::new(world.rows.clone()));
        operator.pause(KIND, None, "").await.unwrap();
        for kind in [KIND, OTHER] {
            schedule_each(&world.scheduler, kind, 1_000, 1).await;
        }
        world.pass_until(60_000).await;
        assert_eq!(world.runs.count(), 1, "one started");
        world.store.free(Op::List);
        world.store.mend();
        world.pass_until(60_000 + seen()).await;
        assert_eq!(started(&world, KIND), [0; 0]);
        assert_eq!(started(&world, OTHER).len(), 2);
        // It was kept all the time: no attempt was lost.
        let other = &world.rows_in(OTHER, State::Done).await;
        assert!(other.iter().all(|task| (task.attempt, task.stalls) == (1, 0)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_over_and_cannot_be_removed_holds_up_nothing() {
    for hangs in [false, true] {
        let world = World::new();
        let _worker = another(&world);
        world.scheduler.pause(KIND, Some(at(3_000)), "").await.unwrap();
        if hangs {
            world.store.hold(Op::Change);
        } else {
            world.store.fail(Op::Change, 1_000);
        }
        for kind in [KIND, OTHER] {
            schedule_each(&world.scheduler, kind, 1_000, 10).await;
        }
        world.pass_until(10_001).await;
        let punctual: Vec<i64> = (1..=10).map(|number| number * 1_000).collect();
        assert_eq!(started(&world, OTHER), punctual);
        assert_eq!(started(&world, KIND).len(), 10);
        assert!(world.store.waiting(Op::Change) <= 1, "it is tried once at a time");
        let mark = async || world.row(("delayline.paused", KIND)).await.state;
        assert_eq!(mark().await, State::Scheduled);
        assert_eq!(world.scheduler.paused().await.unwrap(), []);

        world.store.free(Op::Change);
        world.store.mend();
        schedule_each(&world.scheduler, OTHER, 1_000, 1).await;
        world.pass_until(20_000).await;
        assert_eq!(mark().await, State::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_just_started_starts_nothing_before_it_has_heard_of_pauses() {
    let world = World::new();
    world.scheduler.pause(KIND, None, "").await.unwrap();
    for kind in [KIND, OTHER] {
        schedule_each(&world.scheduler, kind, 0, 1).await;
    }
    world.store.fail(Op::List, 5);
    let _worker = another(&world);
    world.pass_until(10_000).await;
    assert_eq!(started(&world, KIND), [0; 0]);
    assert_eq!(started(&world, OTHER).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_claims_beside_a_worker_have_heard_of_pauses_holds_for_the_worker() {
    let world = World::new();
    world.another_scheduler().pause(KIND, None, "").await.unwrap();
    schedule_each(&world.scheduler, KIND, 0, 1).await;
    let kinds = [Kind::from(KIND)];
    let taken = world
        .scheduler
        .claims()
        .take(&kinds, 1, secs(30), "elsewhere")
        .await;
    assert!(taken.unwrap().is_empty());
    // What is known is fresh, so this worker need not ask.
    let _worker = world.work();
    world.pass_until(10_000).await;
    assert_eq!(world.runs.count(), 0);
    world.another_scheduler().resume(KIND).await.unwrap();
    world.settle().await;
    assert_eq!(world.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_has_no_wake_up_and_is_never_looked_at() {
    let world = World::new();
    let _worker = another(&world);
    world.scheduler.pause(KIND, None, "for years").await.unwrap();
    world.pass(secs(3_600)).await;
    let row = world.row(("delayline.paused", KIND)).await;
    assert_eq!((row.state, row.version), (State::Scheduled, 1));
    let stats = world.scheduler.stats();
    assert_eq!((stats.sent_precise, stats.no_handler), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_paused_is_refused_by_name() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let long = "x".repeat(1_001);
    for (kind, until, reason, field) in [
        ("", None, "", "kind"),
        ("delayline.paused", None, "", "kind"),
        (KIND, Some(at(0)), "", "until"),
        (KIND, None, long.as_str(), "reason"),
    ] {
        let error = scheduler.pause(kind, until, reason).await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().starts_with(field), "{error}");
    }
    assert!(scheduler.resume("").await.unwrap_err().is_invalid());
    assert_eq!(scheduler.paused().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_pause_its_own_kind() {
    let world = World::new();
    let scheduler = world.another_scheduler();
    let handler = world
        .runs
        .handler_that(&world.store_clock, move |context: Context| {
            let scheduler = scheduler.clone();
            Box::pin(async move {
                scheduler
                    .pause(context.task().kind.clone(), None, "too many failures")
                    .await?;
                Ok(Outcome::Snooze(secs(1)))
            })
        });
    let _worker = Running::start(Worker::new(&world.scheduler).handle(KIND, handler));
    schedule_each(&world.scheduler, KIND, 1_000, 1).await;
    world.pass_until(10_000).await;
    assert_eq!(world.runs.times(), [1_000]);
    assert_eq!(world.count(State::Scheduled).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_made_by_pausing_only() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let forged = || NewTask::new("delayline.paused", &1).key(KIND);
    let error = scheduler.schedule(forged()).await.unwrap_err();
    assert!(error.to_string().starts_with("kind"), "{error}");
    let each = scheduler.schedule_each([forged(), NewTask::new(OTHER, &1)]).await;
    assert!(each[0].is_err() && each[1].is_ok());
    assert_eq!(scheduler.paused().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_kinds_are_paused_at_once() {
    let world = World::new();
    let scheduler = world.scheduler.by("page:operator");
    for number in 0..1_000 {
        scheduler.pause(format!("kind-{number}"), None, "").await.unwrap();
    }
    let error = scheduler.pause(KIND, None, "one more").await.unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("1000 paused kinds"),
        "{error}"
    );
    // One of them may still have another reason, and be resumed.
    scheduler.pause("kind-7", None, "another").await.unwrap();
    assert!(scheduler.resume("kind-8").await.unwrap());
    scheduler.pause(KIND, None, "one more").await.unwrap();
    let paused = scheduler.paused().await.unwrap();
    assert_eq!(paused.len(), 1_000);
    assert!(
        paused
            .iter()
            .all(|paused| paused.actor.as_deref() == Some("page:operator"))
    );
    assert!(paused.iter().any(|paused| paused.kind.as_str() == KIND));
}
