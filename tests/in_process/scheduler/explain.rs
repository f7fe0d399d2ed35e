//! Where a task stands is told as it is, in the middle of its way and after it.

use std::time::Duration;

use delayline::history::Explanation;
use delayline::store::{Change, Expect, History, Note, Store, Target, Verb, When};
use delayline::testing::Faults;
use delayline::{NewTask, Outcome, Policy, Scheduled, Scheduler, Shift, State, TaskId, Worker};

use crate::support::{KIND, ROCKETMQ, Running, Setup, World, at, secs};

fn noting(history: History) -> World {
    let setup = Setup {
        table: Some(ROCKETMQ),
        noted: history,
        ..Setup::default()
    };
    setup.build()
}

async fn scheduled(world: &World, delay: u64) -> TaskId {
    let task = NewTask::new(KIND, &1).key("a").after(secs(delay));
    world.scheduler.schedule(task).await.unwrap().task().id
}

async fn explained(world: &World, id: TaskId) -> Explanation {
    world.scheduler.explain(id).await.unwrap().unwrap()
}

fn events(explained: &Explanation) -> Vec<&str> {
    explained
        .history
        .iter()
        .map(|entry| entry.event.as_str())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn in_the_middle_of_a_chain_the_level_is_told_that_holds_the_wake_up() {
    for history in [History::Changes, History::All] {
        let world = noting(history);
        let id = scheduled(&world, 3_600 + 600 + 90).await;
        let running = world.work();
        let first = explained(&world, id).await;
        let leg = first.wake.clone().unwrap().leg;
        assert_eq!((leg.level, leg.delay), (Some(17), secs(3_600)));

        world.pass_until(3_700_000).await;
        let second = explained(&world, id).await;
        assert_eq!(second.task.hop, 1);
        let wake = second.wake.clone().unwrap();
        assert_eq!((wake.leg.level, wake.leg.delay), (Some(14), secs(600)));
        // The level was not late, and hops are recorded as they arrive.
        assert_eq!((wake.since, wake.arrives_at), (at(3_600_000), at(4_200_000)));
        assert!(second.task.wake_at > Some(wake.arrives_at));
        let plan = second.plan.clone().unwrap();
        assert_eq!(plan.iter().map(|leg| leg.delay).sum::<Duration>(), secs(90));
        assert_eq!(plan[0].level, Some(5));
        let missed = second.task.wake_at.unwrap();
        assert_eq!(
            second.words[1],
            format!(
                "Its wake-up was routed to level 14 of {backend} (10m) at {}. It arrives at {} if {backend} took it; it \
                 counts as missed at {missed}, when the sweep looks.",
                at(3_600_000),
                at(4_200_000),
                backend = wake.leg.backend
            )
        );
        assert!(
            second.words[2].starts_with("Then: 1m by level 5 of "),
            "{second:?}"
        );

        let hops = match history {
            History::All => vec!["scheduled", "hop"],
            _ => vec!["scheduled"],
        };
        assert_eq!(events(&second), hops);
        let entry = &second.history[0];
        assert_eq!((entry.version, entry.at, entry.due_at), (1, at(0), at(4_290_000)));
        assert_eq!(entry.wake.as_ref(), Some(&leg));
        drop(running);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_wake_up_that_its_backend_refused_no_more_is_said_than_is_known() {
    let setup = Setup {
        table: Some(ROCKETMQ),
        noted: History::All,
        level_faults: Faults {
            refuse: 100,
            usual: Duration::ZERO,
            ..Faults::default()
        },
        ..Setup::default()
    };
    let world = setup.build();
    let id = scheduled(&world, 600).await;
    world.pass_until(1_000).await;
    assert_eq!(world.precise.log().len(), 1, "the precise one has it");
    let told = explained(&world, id).await;
    let said = &told.words[1];
    assert!(
        !said.contains(" is in ") && said.contains(&format!(". It arrives at {} if ", at(600_000))),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_noted_is_not_made_up() {
    let world = noting(History::Off);
    let id = scheduled(&world, 4_290).await;
    let explained = explained(&world, id).await;
    assert_eq!((explained.wake.clone(), explained.history.len()), (None, 0));
    assert!(explained.words[1].starts_with("Where its wake-up is was not noted; it counts as missed at "));
    assert!(explained.words[2].starts_with("From now on, by the ways of this process: 1h by level 17"));
    assert_eq!(
        explained.words.last().unwrap(),
        "Nothing was noted of what has happened to it."
    );
    let noted = world.rows.history(id).await.unwrap();
    assert_eq!(noted, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_of_another_process_goes_on_by_its_ways() {
    let world = noting(History::Changes);
    let id = scheduled(&world, 4_290).await;
    // One that has no backends, as a command has none.
    let other = Scheduler::builder(world.store.clone())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    let explained = other.explain(id).await.unwrap().unwrap();
    assert_eq!(explained.wake.clone().unwrap().leg.level, Some(17));
    assert_eq!(explained.plan, None);
    assert_eq!(
        explained.words[2],
        "The process that receives it decides what comes then."
    );
    // And what it changes without noting it leaves the wake-up before it on its way, which counts no more.
    assert!(other.reschedule(id, secs(60)).await.unwrap().is_done());
    let explained = other.explain(id).await.unwrap().unwrap();
    assert_eq!(explained.wake, None);
}

#[tokio::test(start_paused = true)]
async fn the_wake_up_after_a_hop_that_is_not_noted_is_told_by_a_scheduler_with_the_same_backends() {
    let world = noting(History::Changes);
    let id = scheduled(&world, 4_290).await;
    let running = world.work();
    world.pass_until(3_700_000).await;
    drop(running);
    assert_eq!(explained(&world, id).await.wake.unwrap().leg.level, Some(14));
    let other = Scheduler::builder(world.store.clone())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    let explained = other.explain(id).await.unwrap().unwrap();
    assert_eq!((explained.task.hop, explained.wake), (1, None));
}

#[tokio::test(start_paused = true)]
async fn every_verb_is_noted_with_its_actor_and_reason() {
    let world = noting(History::Changes);
    let scheduler = world
        .scheduler
        .by("api:shop")
        .because("she asked\n\u{1b}[31mfor it");
    let id = scheduled(&world, 60).await;
    assert!(scheduler.reschedule(id, secs(120)).await.unwrap().is_done());
    assert!(
        scheduler
            .shift(id, Shift::Earlier(secs(30)))
            .await
            .unwrap()
            .is_done()
    );
    let replacing = NewTask::new(KIND, &2).key("a").after(secs(5)).replace();
    let replaced = scheduler.schedule(replacing).await.unwrap();
    assert!(matches!(replaced, Scheduled::Replaced(_)));
    assert!(scheduler.run_now(id).await.unwrap().is_done());
    assert!(
        scheduler
            .cancel_if(id, Expect::Version(5))
            .await
            .unwrap()
            .is_done()
    );
    let explained = explained(&world, id).await;
    let expected = ["scheduled", "moved", "moved", "replaced", "run_now", "cancelled"];
    assert_eq!(events(&explained), expected);
    assert_eq!(explained.history[0].actor.as_deref(), Some("rust"));
    for entry in &explained.history[1..] {
        assert_eq!(entry.actor.as_deref(), Some("api:shop"));
        assert_eq!(entry.reason.as_deref(), Some("she asked\n\u{1b}[31mfor it"));
    }
    let moved = &explained.history[2];
    assert_eq!((moved.due_before, moved.due_at), (Some(at(120_000)), at(90_000)));
    // A terminal is not told what to do.
    let words = format!("Cancelled at {} by api:shop (she asked  [31mfor it).", at(0));
    assert_eq!(explained.words, [words]);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_told_with_their_errors_and_workers() {
    let world = noting(History::All);
    let id = scheduled(&world, 60).await;
    let policy = Policy::new().max_attempts(2);
    let fail = |_| async { Ok(Outcome::Retry("no luck".to_owned())) };
    let worker = Worker::new(&world.scheduler).name("w1");
    let running = Running::start(worker.handle_bytes(KIND, policy, fail));
    world.pass(secs(3_600)).await;
    let explained = explained(&world, id).await;
    assert_eq!(explained.task.state, State::Dead);
    let expected = ["scheduled", "claimed", "retried", "claimed", "dead"];
    let without_hops: Vec<_> = events(&explained)
        .into_iter()
        .filter(|event| *event != "hop")
        .collect();
    assert_eq!(without_hops, expected);
    let ends: Vec<_> = explained
        .history
        .iter()
        .filter_map(|entry| Some((entry.attempt?, entry.actor.as_deref()?, entry.reason.as_deref()?)))
        .collect();
    assert_eq!(ends, [(1, "worker:w1", "no luck"), (2, "worker:w1", "no luck")]);
    let dead = explained.task.finished_at.unwrap();
    let words =
        format!("Dead since {dead}, after attempt 2: no luck. It stays until it is redriven or dismissed.");
    assert_eq!(explained.words, [words]);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn why_a_task_was_put_off_is_told() {
    let put_off = || Outcome::SnoozeBecause("no broker.".to_owned(), secs(600));
    for (history, outcome, said) in [
        (History::Changes, put_off(), " Put off: no broker."),
        (History::Off, put_off(), " Put off: no broker."),
        (
            History::Changes,
            Outcome::Retry("no luck".to_owned()),
            " Attempt 1 failed: no luck.",
        ),
    ] {
        let world = noting(history);
        let id = scheduled(&world, 60).await;
        let answer = move |_| {
            let outcome = outcome.clone();
            async { Ok(outcome) }
        };
        let worker = Worker::new(&world.scheduler);
        let _running = Running::start(worker.handle_bytes(KIND, Policy::new(), answer));
        world.pass_until(60_100).await;
        let explained = explained(&world, id).await;
        assert!(explained.words[0].ends_with(said), "{explained:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn words_tell_times_to_the_second() {
    let world = Setup::default().build();
    let id = scheduled(&world, 1_133).await;
    world.pass_until(150).await;
    let ahead = explained(&world, id).await;
    assert!(ahead.words[0].ends_with(" (in 18m 52s)."), "{ahead:?}");
    let plan = ahead.plan.as_ref().unwrap();
    assert_eq!(plan[0].delay, Duration::from_millis(1_132_850));
    assert!(ahead.words[2].contains(": 18m 52s by "), "{ahead:?}");
    for (passed, said) in [(250, " (250ms ago), "), (1_250, " (1s ago), ")] {
        world.pass_until(1_133_000 + passed).await;
        let behind = explained(&world, id).await;
        assert!(behind.words[0].contains(said), "{behind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_its_kind_is_told() {
    let world = noting(History::Changes);
    let id = scheduled(&world, 60).await;
    world
        .scheduler
        .pause(KIND, None, "the shop is being moved")
        .await
        .unwrap();
    let explained = explained(&world, id).await;
    assert!(explained.paused.is_some());
    let words = format!(
        "Its kind is paused since {}, until it is resumed (the shop is being moved): no worker starts it before.",
        at(0)
    );
    assert!(explained.words.contains(&words), "{explained:?}");
    assert_eq!(world.scheduler.explain(("other", "a")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_spoilt_history_is_told_as_far_as_it_can_be_read() {
    let world = noting(History::Changes);
    let id = scheduled(&world, 60).await;
    let change = Change {
        target: Target::Id(id),
        verb: Verb::Reschedule {
            due: When::After(secs(60)),
            overdue_after: secs(60),
        },
        expect: Expect::Anything,
        note: Note {
            event: Some("\u{0} }{\n\n9 x\n".to_owned()),
        },
    };
    assert!(world.rows.change(vec![change]).await.unwrap().found[0].is_ok());
    let explained = explained(&world, id).await;
    assert_eq!(events(&explained), ["scheduled"]);
    assert_eq!(explained.wake, None);
}
