//! Tasks follow what their service's own table says of them.

mod failing;
mod random;
mod reach;
mod share;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use delayline::backend::{Backend, Departure, Wake};
use delayline::clock::Clock;
use delayline::expected::{Check, Expected};
use delayline::{Error, Failure, Key, NewTask, Outcome, Policy, Scheduler, State, Task, Timestamp};

use crate::support::{KIND, Op, Running, START, Setup, World, at, ms, secs};
use crate::worker::outcomes::worker_that;

/// A table of a service's own, and what the check was asked of it.
#[derive(Clone)]
struct Posts(Arc<Mutex<Inner>>);

struct Inner {
    clock: Clock,
    times: BTreeMap<String, Expected>,
    mood: Mood,
    calls: Vec<Call>,
}

/// One call of the check.
#[derive(Clone, Debug)]
struct Call {
    /// Milliseconds since the start.
    at: i64,
    keys: Vec<String>,
}

/// How the check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Fails,
    Panics,
    /// Before its first await.
    PanicsAtOnce,
    OneTooFew,
    OneTooMany,
    Hangs,
}

impl Posts {
    fn new(clock: &Clock) -> Self {
        let inner = Inner {
            clock: clock.clone(),
            times: BTreeMap::new(),
            mood: Mood::Well,
            calls: Vec::new(),
        };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// An UPDATE by hand: this post is to be published so many milliseconds after the start.
    fn set(&self, key: &str, millis: i64) {
        self.say(key, Expected::At(at(millis)));
    }

    fn say(&self, key: &str, expected: Expected) {
        self.0.lock().unwrap().times.insert(key.to_owned(), expected);
    }

    /// A DELETE by hand.
    fn delete(&self, key: &str) {
        self.0.lock().unwrap().times.remove(key);
    }

    fn feel(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    fn calls(&self) -> Vec<Call> {
        self.0.lock().unwrap().calls.clone()
    }

    fn call_times(&self) -> Vec<i64> {
        self.calls().iter().map(|call| call.at).collect()
    }

    fn check(&self) -> Check {
        let posts = self.clone();
        Check::new(move |keys| {
            let mood = posts.note(&keys);
            assert!(mood != Mood::PanicsAtOnce, "at once");
            let posts = posts.clone();
            async move { posts.answer(mood, keys).await }
        })
    }

    fn note(&self, keys: &[Key]) -> Mood {
        let mut inner = self.0.lock().unwrap();
        let call = Call {
            at: inner.clock.now().as_millis() - START,
            keys: keys.iter().map(Key::to_string).collect(),
        };
        inner.calls.push(call);
        inner.mood
    }

    async fn answer(&self, mood: Mood, keys: Vec<Key>) -> Result<Vec<Expected>, Failure> {
        match mood {
            Mood::Well | Mood::OneTooFew | Mood::OneTooMany | Mood::PanicsAtOnce => {}
            Mood::Fails => return Err("the table is locked".into()),
            Mood::Panics => panic!("a defect of the service"),
            Mood::Hangs => std::future::pending().await,
        }
        let inner = self.0.lock().unwrap();
        let answer = |key: &Key| inner.times.get(key.as_str()).copied().unwrap_or(Expected::Gone);
        let mut answers: Vec<_> = keys.iter().map(answer).collect();
        match mood {
            Mood::OneTooFew => drop(answers.pop()),
            Mood::OneTooMany => answers.push(Expected::Run),
            _ => {}
        }
        Ok(answers)
    }
}

/// A world whose tasks of [`KIND`] follow a table.
fn world() -> (World, Posts) {
    world_of(Setup::default(), |check| check)
}

fn world_of(mut setup: Setup, with: impl Fn(Check) -> Check) -> (World, Posts) {
    let posts = Posts::new(&Clock::simulated(0));
    setup.follow.push((KIND, with(posts.check())));
    (setup.build(), posts)
}

impl World {
    /// Schedules a post as a service would: in its own table, and here.
    async fn publish(&self, posts: &Posts, key: &str, millis: i64) -> Task {
        posts.set(key, millis);
        let new = NewTask::new(KIND, &1).key(key).at(at(millis));
        self.scheduler.schedule(new).await.unwrap().task().clone()
    }

    /// As another process would that has no check.
    fn unfollowing(&self) -> Scheduler {
        self.another_scheduler_over(Arc::new(self.rows.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_as_expected_runs_at_its_time() {
    let (world, posts) = world();
    let _worker = world.work();
    world.publish(&posts, "a", 700_000).await;
    world.settle().await;
    assert_eq!(world.runs.times(), [700_000]);
    // Hops, and once more before it runs.
    assert_eq!(posts.call_times(), [300_000, 600_000, 700_000]);
    let stats = world.scheduler.stats();
    assert_eq!((stats.followed, stats.check_failed, stats.hops), (0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_moved_later_after_its_last_hop_does_not_run_before_its_new_time() {
    let (world, posts) = world();
    let _worker = world.work();
    let row = world.publish(&posts, "a", 10_000).await;
    world.pass_until(9_999).await;
    posts.set("a", 20_000);
    world.pass_until(10_001).await;
    let moved = world.row(row.id).await;
    assert_eq!((moved.state, moved.attempt), (State::Scheduled, 0));
    assert_eq!((moved.due_at, moved.planned_at), (at(20_000), at(20_000)));
    world.settle().await;
    assert_eq!(world.runs.times(), [20_000]);
    assert_eq!(world.runs.all()[0].task.attempt, 1);
    assert_eq!(world.scheduler.stats().followed, 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_slept_while_the_store_answered_is_no_time_that_has_come() {
    let (world, posts) = world();
    let _worker = Running::start(world.worker().sweep_every(secs(1_000)));
    world.store.hold(Op::Arrive);
    world.publish(&posts, "a", 10_000).await;
    world.pass_until(10_001).await;
    posts.set("a", 50_000);
    world.clock.suspend(secs(30));
    tokio::time::sleep(secs(30)).await;
    // It claims, and reads its clock, only now.
    world.store.free(Op::Arrive);
    world.settle().await;
    assert_eq!(world.runs.times(), [50_000]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_moved_later_is_seen_at_a_hop_already() {
    let (world, posts) = world();
    let _worker = world.work();
    let row = world.publish(&posts, "a", 600_000).await;
    posts.set("a", 900_000);
    world.pass_until(300_001).await;
    assert_eq!(world.row(row.id).await.due_at, at(900_000));
    world.settle().await;
    assert_eq!(world.runs.times(), [900_000]);
    let stats = world.scheduler.stats();
    assert_eq!((stats.claimed_on_arrival, stats.followed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_moved_earlier_is_noticed_at_the_next_hop() {
    // To a time that is still to come then, and to one that has passed.
    for (to, runs_at) in [(420_000, 420_000), (120_000, 300_000)] {
        let (world, posts) = world();
        let _worker = world.work();
        let row = world.publish(&posts, "a", 3_600_000).await;
        world.pass_until(60_000).await;
        posts.set("a", to);
        world.settle().await;
        assert_eq!(world.runs.times(), [runs_at]);
        // A time that has passed was planned for when it was noticed: a deadline must not have begun before.
        assert_eq!(world.row(row.id).await.planned_at, at(to.max(300_000)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_to_run_now_runs_when_that_is_noticed() {
    let (world, posts) = world();
    let _worker = world.work();
    world.publish(&posts, "early", 3_600_000).await;
    posts.say("early", Expected::Run);
    world.publish(&posts, "due", 10_000).await;
    posts.say("due", Expected::Run);
    world.settle().await;
    assert_eq!(world.runs.times(), [10_000, 300_000]);
    assert_eq!(world.scheduler.stats().followed, 1, "what is due runs as it is");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_gone_is_cancelled_and_does_not_run() {
    let (world, posts) = world();
    let _worker = world.work();
    let early = world.publish(&posts, "early", 3_600_000).await;
    let due = world.publish(&posts, "due", 10_000).await;
    posts.delete("early");
    posts.delete("due");
    world.pass_until(300_001).await;
    for id in [early.id, due.id] {
        let row = world.row(id).await;
        assert_eq!((row.state, row.attempt), (State::Cancelled, 0));
    }
    assert_eq!(world.runs.count(), 0);
    assert_eq!(world.scheduler.stats().followed, 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_no_time_yet_waits_until_it_has_one() {
    let (world, posts) = world();
    let _worker = world.work();
    let early = world.publish(&posts, "early", 360_000).await;
    let due = world.publish(&posts, "due", 10_000).await;
    posts.say("early", Expected::NotYet);
    posts.say("due", Expected::NotYet);
    world.pass_until(7_200_001).await;
    for id in [early.id, due.id] {
        let row = world.row(id).await;
        assert_eq!(
            (row.state, row.due_at, row.attempt),
            (State::Scheduled, Timestamp::MAX, 0)
        );
    }
    posts.set("early", 7_800_000);
    posts.set("due", 7_900_000);
    world.settle().await;
    assert_eq!(world.runs.times(), [7_800_000, 7_900_000]);
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_between_the_last_hop_and_the_due_time_is_obeyed() {
    let (world, posts) = world();
    let _worker = world.work();
    for key in ["later", "gone", "earlier"] {
        world.publish(&posts, key, 360_000).await;
    }
    world.pass_until(300_100).await;
    assert_eq!(posts.call_times(), [300_000]);
    posts.set("later", 400_000);
    posts.delete("gone");
    posts.set("earlier", 330_000);
    world.settle().await;
    let runs = world.runs.all();
    let ran: Vec<_> = runs
        .iter()
        .map(|run| (run.task.key.as_ref().unwrap().as_str(), run.at))
        .collect();
    assert_eq!(ran, [("earlier", 360_000), ("later", 400_000)]);
}

#[tokio::test(start_paused = true)]
async fn retries_and_snoozes_keep_their_pauses_while_the_table_says_what_it_said() {
    let (world, posts) = world();
    let long = secs(3_600);
    let policy = Policy::new().backoff(long, long);
    let worker = worker_that(&world, policy, |context| {
        let first = context.attempt() == 1 && context.payload() == b"\"retry\"";
        Box::pin(async move {
            if first {
                return Err("not yet".into());
            }
            Ok(match context.lateness() {
                // Planned for long ago, but due just now.
                _ if context.task().due_at != context.task().planned_at => Outcome::Done,
                _ => Outcome::Snooze(secs(1_000)),
            })
        })
    });
    let _worker = crate::support::Running::start(worker);
    let mut rows = Vec::new();
    for key in ["retry", "snooze"] {
        posts.set(key, 10_000);
        let new = NewTask::new(KIND, key).key(key).at(at(10_000));
        rows.push(world.scheduler.schedule(new).await.unwrap().task().clone());
    }
    world.pass_until(10_001).await;
    let mut expected = Vec::new();
    for row in &rows {
        let row = world.row(row.id).await;
        assert_eq!((row.state, row.planned_at), (State::Scheduled, at(10_000)));
        expected.push(row.due_at.as_millis() - START);
    }
    assert!(expected[0] > 600_000, "the seed gives a long pause: {expected:?}");
    assert_eq!(expected[1], 1_010_000);
    world.settle().await;
    for (row, expected) in rows.iter().zip(expected) {
        let times: Vec<_> = world.runs.of(row.id).iter().map(|run| run.at).collect();
        assert_eq!(times, [10_000, expected]);
        assert!(world.row(row.id).await.hop >= 2, "it was asked about on the way");
    }
    assert_eq!(world.scheduler.stats().followed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_follows_a_new_time() {
    let (world, posts) = world();
    let long = secs(36_000);
    let worker = worker_that(&world, Policy::new().backoff(long, long), |context| {
        Box::pin(async move {
            match context.task().planned_at == at(10_000) {
                true => Err("not yet".into()),
                false => Ok(Outcome::Done),
            }
        })
    });
    let _worker = crate::support::Running::start(worker);
    world.publish(&posts, "a", 10_000).await;
    world.pass_until(20_000).await;
    posts.set("a", 500_000);
    world.settle().await;
    assert_eq!(world.runs.times(), [10_000, 500_000]);
    assert_eq!(world.runs.all()[1].task.attempt, 1, "it starts anew");
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_key_is_refused() {
    let (world, _) = world();
    let error = world
        .scheduler
        .schedule(NewTask::new(KIND, &1))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Invalid { field: "key", .. }), "{error}");
    assert!(error.to_string().contains(KIND), "{error}");
    assert_eq!(world.every_row().await, []);
    let other = world.scheduler.schedule(NewTask::new("other", &1)).await;
    assert!(other.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_without_a_key_of_a_process_that_has_no_check_is_not_asked_about() {
    let (world, posts) = world();
    let _worker = world.work();
    let new = NewTask::new(KIND, &1).after(secs(60));
    let row = world.unfollowing().schedule(new).await.unwrap().task().clone();
    // And its wake-up comes early once.
    let wake = Wake {
        id: row.id,
        kind: row.kind.clone(),
        version: row.version,
    };
    let delay = secs(1);
    world.precise.send(&[Departure { wake, delay }]).await.unwrap();
    world.pass_until(1_001).await;
    assert_eq!(world.row(row.id).await.hop, 1);
    world.pass_until(60_001).await;
    assert_eq!(world.runs.count(), 1);
    assert_eq!(posts.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_cannot_be_used_is_refused_by_field_value_and_what_is_allowed() {
    let world = World::new();
    let check = || Posts::new(&world.clock).check();
    let build = |checks: Vec<(&str, Check)>| {
        let mut builder = Scheduler::builder(world.store.clone());
        for (kind, check) in checks {
            builder = builder.follow(kind, check);
        }
        builder.build().map(|_| ())
    };
    for (checks, parts) in [
        (
            vec![(KIND, check().every(ms(999)))],
            ["every", "999ms", "1 s or more"],
        ),
        (
            vec![(KIND, check().every(ms(86_400_001)))],
            ["every", "86400.001s", "up to 24 h"],
        ),
        (
            vec![(KIND, check()), (KIND, check())],
            ["kind", KIND, "one check a kind"],
        ),
        (vec![("", check())], ["kind", "\"\"", "1 to 100 bytes"]),
    ] {
        let text = build(checks).unwrap_err().to_string();
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
    for every in [secs(1), secs(86_400)] {
        build(vec![(KIND, check().every(every)), ("other", check())]).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_too_late_changes_nothing() {
    let (world, posts) = world();
    let _worker = world.work();
    let cancelled = world.publish(&posts, "cancelled", 600_000).await;
    let moved = world.publish(&posts, "moved", 600_000).await;
    let followed = world.publish(&posts, "followed", 600_000).await;
    for key in ["cancelled", "moved", "followed"] {
        posts.set(key, 700_000);
    }
    world.store.hold(Op::Change);
    world.pass_until(300_100).await;
    assert_eq!(world.store.waiting(Op::Change), 1);
    // By a caller, between the answer of the check and the change.
    let caller = world.unfollowing();
    assert!(caller.cancel(cancelled.id).await.unwrap().is_done());
    let answer = caller.reschedule(moved.id, secs(500)).await.unwrap();
    assert!(answer.is_done());
    world.store.free(Op::Change);
    world.pass(ms(1)).await;
    assert_eq!(world.row(cancelled.id).await.state, State::Cancelled);
    assert_eq!(world.row(moved.id).await.due_at, at(800_100));
    assert_eq!(world.row(followed.id).await.due_at, at(700_000));
    assert_eq!(world.scheduler.stats().followed, 1);
    world.settle().await;
    // Asked about at its next arrival, the one that was moved follows as well.
    assert_eq!(world.runs.count(), 2);
    assert_eq!(world.row(cancelled.id).await.state, State::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_when_it_is_told_costs_a_second_look() {
    for op in [Op::Change, Op::Hop] {
        let (world, posts) = world();
        let _worker = world.work();
        let row = world.publish(&posts, "a", 600_000).await;
        if op == Op::Change {
            posts.set("a", 310_000);
        }
        world.pass_until(299_999).await;
        world.store.fail(op, 1);
        world.pass_until(302_000).await;
        assert_eq!(posts.calls().len(), 2);
        let expected = if op == Op::Change { 310_000 } else { 600_000 };
        assert_eq!(world.row(row.id).await.due_at, at(expected));
        world.settle().await;
        assert_eq!(world.runs.times(), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_is_asked_about_too() {
    let (world, posts) = world_of(Setup::default(), |check| check.every(secs(30)));
    let clock = world.clock.clone();
    let worker = worker_that(&world, Policy::new().concurrency(1).prefetch(10), move |_| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(secs(3_000)).await;
            Ok(Outcome::Done)
        })
    });
    let _worker = crate::support::Running::start(worker);
    for n in 0..600 {
        world.publish(&posts, &n.to_string(), 1_000).await;
    }
    world.pass(secs(5)).await;
    posts.delete("599");
    posts.set("598", 4_000_000);
    world.pass(secs(35)).await;
    assert_eq!(world.row((KIND, "599")).await.state, State::Cancelled);
    assert_eq!(world.row((KIND, "598")).await.due_at, at(4_000_000));
    assert_eq!(world.count(State::Cancelled).await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_about_long_before_its_turn_is_asked_about_again() {
    let (world, posts) = world_of(Setup::default(), |check| check.every(secs(30)));
    let clock = world.clock.clone();
    let worker = worker_that(&world, Policy::new().concurrency(1).prefetch(10), move |_| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(secs(100)).await;
            Ok(Outcome::Done)
        })
    });
    let _worker = crate::support::Running::start(worker);
    world.publish(&posts, "first", 1_000).await;
    world.pass(secs(5)).await;
    let second = world.publish(&posts, "second", 6_000).await;
    world.pass(secs(5)).await;
    assert_eq!(world.row(second.id).await.state, State::Running);
    posts.delete("second");
    world.settle().await;
    assert_eq!(world.row(second.id).await.state, State::Cancelled);
    assert!(world.runs.of(second.id).is_empty());
}
