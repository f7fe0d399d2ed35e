//! Cancel, redrive and find: a definite answer in every state, and the row in it.

use delayline::store::{Action, Expect, Target, When};
use delayline::{Answer, Error, NewTask, Outcome, Shift, State, Task, Worker};

use crate::support::{Answered, KIND, Running, World, at, ms, secs};

/// One task in every state, each under its state's name as key; the running one for another 100 s.
async fn one_in_every_state(world: &World) -> Running {
    let clock = world.clock.clone();
    let handler = world
        .runs
        .handler_that(&world.store_clock, move |context| -> Answered {
            let clock = clock.clone();
            Box::pin(async move {
                match context.key() {
                    Some("done") => Ok(Outcome::Done),
                    Some("dead") => Ok(Outcome::Discard("by name".into())),
                    _ => {
                        clock.sleep(secs(100)).await;
                        Ok(Outcome::Done)
                    }
                }
            })
        });
    let worker = Running::start(Worker::new(&world.scheduler).handle(KIND, handler));
    for key in ["done", "dead", "running"] {
        world
            .scheduler
            .schedule(NewTask::new(KIND, &1).key(key))
            .await
            .unwrap();
    }
    for key in ["cancelled", "scheduled"] {
        let task = NewTask::new(KIND, &1).key(key).after(secs(1_000));
        world.scheduler.schedule(task).await.unwrap();
    }
    let answer = world.scheduler.cancel((KIND, "cancelled")).await.unwrap();
    assert!(answer.is_done(), "{answer:?}");
    world.pass(ms(1)).await;
    worker
}

async fn targets(world: &World, key: &str) -> [Target; 2] {
    let by_key = Target::from((KIND, key));
    let row = world.row(by_key.clone()).await;
    [row.id.into(), by_key]
}

#[tokio::test(start_paused = true)]
async fn cancel_answers_by_the_state_of_the_task_by_id_and_by_key() {
    for by in 0..2 {
        let world = World::new();
        let _worker = one_in_every_state(&world).await;
        for (key, state) in [
            ("done", State::Done),
            ("dead", State::Dead),
            ("cancelled", State::Cancelled),
            ("running", State::Running),
        ] {
            let target = targets(&world, key).await[by].clone();
            let before = world.row(target.clone()).await;
            assert_eq!(before.state, state);
            let answer = world.scheduler.cancel(target.clone()).await.unwrap();
            match state {
                State::Running => assert_eq!(answer, Answer::TooLate(before.clone())),
                _ => assert_eq!(answer, Answer::Finished(before.clone())),
            }
            assert_eq!(world.row(target).await, before, "{key} was left as it was");
        }
        let target = targets(&world, "scheduled").await[by].clone();
        let Answer::Done(task) = world.scheduler.cancel(target.clone()).await.unwrap() else {
            panic!("not cancelled");
        };
        assert_eq!((task.state, task.version), (State::Cancelled, 2));
        assert_eq!(task.finished_at, Some(at(1)));
        assert_eq!(world.row(target.clone()).await, task);
        // Twice: it is over already, and that is said.
        let twice = world.scheduler.cancel(target).await.unwrap();
        assert_eq!(twice, Answer::Finished(task.clone()));

        world.pass(secs(2_000)).await;
        assert!(world.runs.of(task.id).is_empty(), "a cancelled task never runs");
    }
}

#[tokio::test(start_paused = true)]
async fn no_verb_finds_a_task_that_is_not_there() {
    let world = World::new();
    let scheduler = &world.scheduler;
    for target in [Target::from(world.clock.new_id()), Target::from((KIND, "absent"))] {
        let target = || target.clone();
        for answer in [
            scheduler.cancel(target()).await.unwrap(),
            scheduler.run_now(target()).await.unwrap(),
            scheduler.redrive(target()).await.unwrap(),
            scheduler.dismiss(target()).await.unwrap(),
            scheduler.reschedule(target(), secs(1)).await.unwrap(),
            scheduler.shift(target(), Shift::Later(secs(1))).await.unwrap(),
        ] {
            assert_eq!(answer, Answer::NotFound);
            assert_eq!(answer.task(), None);
        }
        assert_eq!(scheduler.find(target()).await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn every_verb_but_redrive_is_too_late_for_a_running_or_finished_task() {
    let world = World::new();
    let _worker = one_in_every_state(&world).await;
    let scheduler = &world.scheduler;
    for key in ["done", "dead", "cancelled", "running"] {
        let target = || Target::from((KIND, key));
        let before = world.row(target()).await;
        let expected = match before.state {
            State::Running => Answer::TooLate(before.clone()),
            _ => Answer::Finished(before.clone()),
        };
        for answer in [
            scheduler.run_now(target()).await.unwrap(),
            scheduler.reschedule(target(), secs(1)).await.unwrap(),
            scheduler.shift(target(), Shift::Later(secs(1))).await.unwrap(),
        ] {
            assert_eq!(answer, expected, "{key}");
        }
        assert_eq!(world.row(target()).await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn redrive_gives_a_dead_task_another_life_and_nothing_else() {
    let world = World::new();
    let _worker = one_in_every_state(&world).await;
    let scheduler = &world.scheduler;
    for key in ["scheduled", "running", "done", "cancelled"] {
        let before = world.row((KIND, key)).await;
        let answer = scheduler.redrive((KIND, key)).await.unwrap();
        match before.state {
            State::Scheduled | State::Running => assert_eq!(answer, Answer::Conflict(before.clone())),
            _ => assert_eq!(answer, Answer::Finished(before.clone())),
        }
        assert_eq!(world.row(before.id).await, before);
    }

    // Its key was taken by another task meanwhile: that one is named.
    let dead = world.row((KIND, "dead")).await;
    let other = NewTask::new(KIND, &1).key("dead").after(secs(50));
    let other = scheduler.schedule(other).await.unwrap().task().clone();
    let answer = scheduler.redrive(dead.id).await.unwrap();
    assert_eq!(answer, Answer::Conflict(other.clone()));
    assert!(scheduler.cancel(other.id).await.unwrap().is_done());

    world.pass(secs(2)).await;
    let Answer::Done(task) = scheduler.redrive(dead.id).await.unwrap() else {
        panic!("not redriven");
    };
    assert_eq!((task.state, task.attempt), (State::Scheduled, 0));
    assert_eq!((task.due_at, task.planned_at), (at(2_001), at(2_001)));
    assert_eq!((&task.last_error, task.finished_at), (&None, None));
    world.pass(ms(1)).await;
    let times: Vec<_> = world.runs.of(dead.id).iter().map(|run| run.at).collect();
    assert_eq!(times, [0, 2_001]);
}

#[tokio::test(start_paused = true)]
async fn find_by_key_prefers_the_live_task_and_else_gives_the_newest() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let new = || NewTask::new(KIND, &1).key("k").after(secs(5));
    // Ids are in the order of time: the live one gets the smallest.
    let oldest = world.clock.new_id();
    world.pass(ms(10)).await;
    let mut over: Vec<Task> = Vec::new();
    for _ in 0..3 {
        world.pass(ms(10)).await;
        let row = scheduler.schedule(new()).await.unwrap().task().clone();
        assert!(scheduler.cancel(row.id).await.unwrap().is_done());
        over.push(world.row(row.id).await);
    }
    assert_eq!(scheduler.find((KIND, "k")).await.unwrap(), over.last().cloned());
    let live = scheduler.schedule(new().id(oldest)).await.unwrap().task().clone();
    assert_eq!(scheduler.find((KIND, "k")).await.unwrap(), Some(live.clone()));
    for row in over {
        assert_eq!(scheduler.find(row.id).await.unwrap(), Some(row));
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_carries_the_row_as_it_is() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let row = scheduler
        .schedule(NewTask::new(KIND, &1).key("k").after(secs(5)))
        .await
        .unwrap();
    assert_eq!(*row.task(), world.row((KIND, "k")).await);
    let id = row.task().id;
    for answer in [
        scheduler.reschedule(id, secs(9)).await.unwrap(),
        scheduler.shift(id, Shift::Later(secs(1))).await.unwrap(),
        scheduler.run_now(id).await.unwrap(),
        scheduler.cancel(id).await.unwrap(),
    ] {
        let version = answer.task().map(|task| task.version);
        assert!(answer.is_done(), "{answer:?}");
        // The last of the four is the row that is there.
        if version == Some(5) {
            assert_eq!(answer.task(), Some(&world.row(id).await));
        }
    }
    assert_eq!(world.row(id).await.version, 5);
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_a_kind_and_state_by_due_time_page_by_page() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let delays = [30, 10, 20, 20, 50];
    let tasks = delays.map(|delay| NewTask::new(KIND, &1).after(secs(delay)));
    scheduler.schedule_all(tasks).await.unwrap();
    scheduler
        .schedule(NewTask::new("other", &1).after(secs(1)))
        .await
        .unwrap();
    let mut page = delayline::store::Page::new(KIND, State::Scheduled).limit(2);
    let mut seen = Vec::new();
    loop {
        let rows = scheduler.list(&page).await.unwrap();
        let Some(last) = rows.last() else { break };
        assert!(rows.len() <= 2);
        page.after = Some((last.due_at, last.id));
        seen.extend(rows.iter().map(|row| row.due_at));
    }
    assert_eq!(seen, [10, 20, 20, 30, 50].map(|due| at(due * 1_000)));

    let due_within = |from: i64, before: i64| {
        let page = delayline::store::Page::new(KIND, State::Scheduled);
        page.due_from(at(from)).due_before(at(before))
    };
    for (from, before, dues) in [
        (20_000, 30_000, &[20, 20][..]),
        (19_999, 30_001, &[20, 20, 30]),
        (20_001, 30_000, &[]),
        (0, 10_001, &[10]),
    ] {
        let rows = scheduler.list(&due_within(from, before)).await.unwrap();
        let found: Vec<_> = rows.iter().map(|row| row.due_at).collect();
        let dues: Vec<_> = dues.iter().map(|due| at(due * 1_000)).collect();
        assert_eq!(found, dues, "from {from}, before {before}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_are_changed_at_once_and_each_has_an_answer_of_its_own() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let task = |key: &str| NewTask::new(KIND, &1).key(key).after(secs(30));
    for key in ["a", "b", "c", "d"] {
        scheduler.schedule(task(key)).await.unwrap();
    }
    let by_key = |key: &str| Target::from((KIND, key));
    let never = When::After(std::time::Duration::MAX);
    let answers = scheduler
        .change_each([
            (by_key("a"), Expect::Anything, Action::Cancel),
            (by_key("b"), Expect::Anything, Action::Reschedule(never)),
            (by_key(""), Expect::Anything, Action::Cancel),
            (by_key("b"), Expect::Version(7), Action::RunNow),
            (by_key("c"), Expect::Version(1), Action::RunNow),
            (by_key("d"), Expect::Anything, Action::Redrive),
            (
                by_key("d"),
                Expect::Due(at(30_000)),
                Action::Reschedule(secs(60).into()),
            ),
            (by_key("e"), Expect::Anything, Action::Dismiss),
            (
                by_key("d"),
                Expect::Due(at(60_000)),
                Action::Shift(Shift::Earlier(secs(10))),
            ),
            (
                by_key("d"),
                Expect::Version(3),
                Action::Shift(Shift::Earlier(secs(10))),
            ),
        ])
        .await;
    let said: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Answer::Done(task)) => {
                format!("{} {:?} {}", task.version, task.state, task.due_at.as_millis())
            }
            Ok(Answer::Conflict(task)) => format!("conflict {}", task.version),
            Ok(Answer::NotFound) => "not found".to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(Error::Invalid { field, .. }) => format!("no {field}"),
            Err(other) => format!("{other:?}"),
        })
        .collect();
    let start = at(0).as_millis();
    assert_eq!(
        said,
        [
            format!("2 Cancelled {}", start + 30_000),
            "no due time".to_owned(),
            "no key".to_owned(),
            "conflict 1".to_owned(),
            format!("2 Scheduled {start}"),
            "conflict 1".to_owned(),
            format!("2 Scheduled {}", start + 60_000),
            "not found".to_owned(),
            format!("3 Scheduled {}", start + 50_000),
            "no expect".to_owned(),
        ]
    );
}
