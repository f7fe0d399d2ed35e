//! What becomes of tasks is told to listeners, and failures are in the log.

use delayline::{Events, NewTask, Outcome, Policy, Shift, State, Task, defaults};
use tokio::time::timeout;
use tracing::Level;

use crate::logged::Logged;
use crate::support::{KIND, Running, World, at, ms, secs};
use crate::worker::outcomes::worker_that;

/// All that has been told so far.
async fn told(events: &mut Events) -> Vec<Task> {
    let mut told = Vec::new();
    while let Ok(Some(task)) = timeout(ms(1), events.next()).await {
        told.push(task);
    }
    told
}

#[tokio::test(start_paused = true)]
async fn each_event_is_the_task_as_its_row_has_become() {
    let world = World::new();
    let mut events = world.scheduler.events();
    let target = (KIND, "42");
    let task = NewTask::new(KIND, "a payload").key("42").after(secs(60));
    world.scheduler.schedule(task).await.unwrap();
    let _ = world
        .scheduler
        .shift(target, Shift::Later(secs(60)))
        .await
        .unwrap();
    let _ = world.scheduler.run_now(target).await.unwrap();
    let mut rows = Vec::new();
    rows.push(world.row(target).await);
    let _worker = Running::start(worker_that(&world, Policy::new().max_attempts(2), |context| {
        Box::pin(async move {
            match context.attempt() {
                1 => Ok(Outcome::RetryAfter("not yet".into(), secs(10))),
                _ => Err("no more".into()),
            }
        })
    }));
    world.pass_until(5_000).await;
    rows.push(world.row(target).await);
    world.settle().await;
    rows.push(world.row(target).await);
    let told = told(&mut events).await;
    let became: Vec<_> = told
        .iter()
        .map(|task| (task.state, task.attempt, task.due_at))
        .collect();
    let soon = |millis: i64| at(millis);
    assert_eq!(
        &became[..3],
        [
            (State::Scheduled, 0, soon(60_000)),
            (State::Scheduled, 0, soon(120_000)),
            (State::Scheduled, 0, soon(0)),
        ]
    );
    let states: Vec<_> = told.iter().map(|task| task.state).collect();
    let [scheduled, running, dead] = [State::Scheduled, State::Running, State::Dead];
    assert_eq!(
        states,
        [scheduled, scheduled, scheduled, running, scheduled, running, dead]
    );
    // As the store has it, but for what is not for people.
    for (event, row) in [&told[2], &told[4], &told[6]].into_iter().zip(rows) {
        assert!(event.payload.is_empty());
        let seen = |task: &Task| {
            let Task {
                id,
                version,
                state,
                attempt,
                due_at,
                planned_at,
                ..
            } = task;
            (*id, *version, *state, *attempt, *due_at, *planned_at)
        };
        assert_eq!(seen(event), seen(&row));
        assert_eq!(
            (&event.last_error, event.finished_at),
            (&row.last_error, row.finished_at)
        );
    }
    assert_eq!(events.missed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_too_slow_is_told_how_much_it_missed() {
    let world = World::new();
    let mut events = world.scheduler.events();
    let more = 10;
    let tasks = (0..defaults::EVENTS + more).map(|number| NewTask::new(KIND, &number).after(secs(60)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    assert_eq!(told(&mut events).await.len(), defaults::EVENTS);
    assert_eq!((events.missed(), events.missed()), (more as u64, 0));
}

#[tokio::test(start_paused = true)]
async fn what_claimants_do_is_told_too() {
    let world = World::new();
    let mut events = world.scheduler.events();
    world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    let claims = world.scheduler.claims();
    let taken = claims.take(&[KIND.into()], 1, secs(30), "a").await.unwrap();
    assert!(claims.snooze(taken[0].claim, secs(1)).await.unwrap());
    world.pass(secs(2)).await;
    let taken = claims.take(&[KIND.into()], 1, secs(30), "a").await.unwrap();
    assert!(claims.done(taken[0].claim).await.unwrap());
    let states: Vec<_> = told(&mut events).await.iter().map(|task| task.state).collect();
    let [scheduled, running, done] = [State::Scheduled, State::Running, State::Done];
    assert_eq!(states, [scheduled, running, scheduled, running, done]);
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_are_logged_and_of_many_how_many_there_were() {
    let (logged, _guard) = Logged::by_thread(Level::WARN);
    let world = World::new();
    let policy = Policy::new().max_attempts(2).backoff(secs(3_600), secs(3_600));
    let worker = worker_that(&world, policy, |context| {
        Box::pin(async move {
            match context.key() {
                Some("panics") => panic!("no paper"),
                _ => Ok(Outcome::RetryAfter("the bank is closed".into(), secs(3_600))),
            }
        })
    });
    let worker = Running::start(worker);
    let schedule = async |key: String| {
        let task = NewTask::new(KIND, &1).key(key);
        world.scheduler.schedule(task).await.unwrap();
        world.pass(ms(10)).await;
    };
    schedule("panics".to_owned()).await;
    let text = logged.text();
    for told in [
        "WARN",
        "an attempt failed",
        "key=\"panics\"",
        "attempt=1",
        "panicked: no paper",
        "next_in=",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    let more = 5;
    for number in 1..defaults::LOGGED_FAILURES + more {
        schedule(number.to_string()).await;
    }
    let one_by_one = || logged.count("an attempt failed");
    assert_eq!(one_by_one(), defaults::LOGGED_FAILURES, "{}", logged.text());
    assert_eq!(logged.count("the bank is closed"), defaults::LOGGED_FAILURES - 1);
    assert_eq!(logged.count("left_out"), 0);
    world.pass(defaults::LOGGED_FAILURES_WITHIN + secs(1)).await;
    assert_eq!(logged.count(&format!("left_out={more}")), 1, "{}", logged.text());
    // Another period.
    schedule("later".to_owned()).await;
    assert_eq!(one_by_one(), defaults::LOGGED_FAILURES + 1);
    worker.stop().await.unwrap();
    assert_eq!(logged.count("left_out"), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_of_claimants_are_logged_and_what_is_no_failure_is_not() {
    let (logged, _guard) = Logged::by_thread(Level::WARN);
    let world = World::new();
    let claims = world.scheduler.claims();
    let take = async || {
        world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
        let taken = claims.take(&[KIND.into()], 1, secs(30), "a").await.unwrap();
        taken[0].claim
    };
    assert!(claims.snooze(take().await, secs(60)).await.unwrap());
    assert!(claims.done(take().await).await.unwrap());
    assert_eq!(logged.text(), "");
    assert!(claims.retry(take().await, "no paper", None).await.unwrap());
    assert!(logged.text().contains("reason=\"no paper\""), "{}", logged.text());
}
