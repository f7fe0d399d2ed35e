//! A worker whose place another one takes: how settings of kinds are changed while a process runs.

use delayline::store::{History, Keep};
use delayline::{Context, Edit, Failure, Kind, NewTask, Outcome, Policy, State};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Answered, KIND, Running, Setup, World, at, ms, secs};
use crate::worker::leases::{Ended, schedule, working};
use crate::worker::outcomes::worker_that;

type Result = std::result::Result<(), delayline::Error>;

/// A worker that ends when another has its place; it stops when `stop` is sent, or dropped.
fn replaceable(worker: delayline::Worker) -> (oneshot::Sender<()>, oneshot::Sender<()>, JoinHandle<Result>) {
    let ((replace, replaced), (stop, stopped)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
    let told = |told: oneshot::Receiver<()>| async { drop(told.await) };
    let running = tokio::spawn(worker.run_until_replaced(told(replaced), told(stopped)));
    (replace, stop, running)
}

fn one_at_a_time() -> Policy {
    Policy::new().concurrency(1).prefetch(10)
}

#[tokio::test(start_paused = true)]
async fn what_runs_ends_in_its_time_and_what_waits_starts_at_once_at_the_next_worker() {
    let world = World::new();
    let (old, new) = (Ended::default(), Ended::default());
    let worker = worker_that(&world, one_at_a_time(), working(&world, &old)).stop_timeout(secs(1));
    let (replace, _stop, replaced) = replaceable(worker);
    let running = schedule(&world, 120).await;
    let queued = [schedule(&world, 1).await, schedule(&world, 1).await];
    world.pass(secs(2)).await;
    assert_eq!(world.runs.count(), 1);

    let two = Policy::new().concurrency(2);
    let _next = Running::start(worker_that(&world, two, working(&world, &new)));
    replace.send(()).unwrap();
    world.pass(secs(3)).await;
    // By the next worker, both at once.
    assert_eq!(new.times().len(), 2);
    for row in &queued {
        let row = world.row(row.id).await;
        assert_eq!((row.state, row.attempt), (State::Done, 1));
    }
    // Longer than a stop would wait, and than a lease.
    world.pass(secs(100)).await;
    assert!(!replaced.is_finished() && old.times().is_empty());
    replaced.await.unwrap().unwrap();
    assert_eq!((world.now(), old.times()), (120_000, vec![120_000]));
    let row = world.row(running.id).await;
    assert_eq!((row.state, row.attempt), (State::Done, 1), "it was not run twice");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_replaced_stops_in_its_time_nevertheless() {
    let world = World::new();
    let old = Ended::default();
    let worker = worker_that(&world, one_at_a_time(), working(&world, &old)).stop_timeout(secs(5));
    let (replace, stop, replaced) = replaceable(worker);
    let running = schedule(&world, 120).await;
    world.pass(secs(2)).await;
    replace.send(()).unwrap();
    world.pass(secs(60)).await;
    stop.send(()).unwrap();
    replaced.await.unwrap().unwrap();
    assert_eq!((world.now(), old.times()), (67_000, vec![67_000]));
    let row = world.row(running.id).await;
    assert_eq!((row.state, row.attempt), (State::Scheduled, 0), "given back");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_under_way_ends_by_the_policy_that_it_began_with_and_the_next_by_the_new_one() {
    let world = World::new();
    let failing = |clock: delayline::clock::Clock| {
        move |context: Context| -> Answered {
            let clock = clock.clone();
            Box::pin(async move {
                clock.sleep(secs(10)).await;
                Err(Failure::from(format!("attempt {}", context.attempt())))
            })
        }
    };
    let worker = |attempts| {
        let policy = Policy::new().max_attempts(attempts).backoff(secs(0), secs(0));
        worker_that(&world, policy, failing(world.clock.clone()))
    };
    let (replace, _stop, replaced) = replaceable(worker(1));
    let first = schedule(&world, 1).await;
    world.pass(secs(5)).await;
    let _next = Running::start(worker(2));
    replace.send(()).unwrap();
    replaced.await.unwrap().unwrap();
    let row = world.row(first.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 1));
    let second = schedule(&world, 1).await;
    world.pass(secs(25)).await;
    let row = world.row(second.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_of_a_kind_may_change_at_any_time() {
    let setup = Setup {
        noted: History::Changes,
        ..Setup::default()
    };
    let world = setup.build();
    let _worker = Running::start(worker_that(&world, Policy::new(), |_| {
        Box::pin(async { Ok(Outcome::Done) })
    }));
    let kind = Kind::from(KIND);
    // By its name and by its id, and by a claim that is ended without its kind.
    let events = async |id| {
        let explained = world.scheduler.explain(id).await.unwrap().unwrap();
        explained
            .history
            .into_iter()
            .map(|entry| entry.event)
            .collect::<Vec<_>>()
    };
    let done = schedule(&world, 1).await;
    world.pass(ms(1)).await;
    assert_eq!(events(done.id).await, ["scheduled"]);
    for (history, expected) in [
        (History::Off, &[][..]),
        (History::All, &["scheduled", "claimed", "done"]),
        (History::Changes, &["scheduled"]),
    ] {
        let keep = Keep::new().history(history).ended(secs(60));
        world.scheduler.keep([(kind.clone(), keep)]).unwrap();
        let done = schedule(&world, 1).await;
        world.pass(ms(1)).await;
        let row = world.row(done.id).await;
        assert_eq!(row.wake_at, Some(at(world.now() - 1 + 60_000)), "{history:?}");
        assert_eq!(events(done.id).await, expected, "{history:?}");

        let other = NewTask::new("other", &1);
        let other = world.scheduler.schedule(other).await.unwrap().task().id;
        assert!(world.scheduler.cancel(other).await.unwrap().is_done());
        assert_eq!(events(other).await, ["scheduled", "cancelled"], "{history:?}");
        let later = NewTask::new(KIND, &1).after(secs(600));
        let later = world.scheduler.schedule(later).await.unwrap().task().id;
        let moved = Edit::payload(&2).after(secs(900));
        assert!(world.scheduler.edit(later, moved).await.unwrap().is_done());
        assert!(world.scheduler.cancel(later).await.unwrap().is_done());
        let noted: &[&str] = match history {
            History::Off => &[],
            _ => &["scheduled", "edited", "cancelled"],
        };
        assert_eq!(events(later).await, noted, "{history:?}");
    }
    let keep = Keep::new().history(History::All);
    world.scheduler.keep([("pulled".into(), keep)]).unwrap();
    let pulled = NewTask::new("pulled", &1);
    world.scheduler.schedule(pulled).await.unwrap();
    let claims = world.scheduler.claims();
    let claimed = claims.take(&["pulled".into()], 1, secs(30), "me").await.unwrap();
    assert!(claims.done(claimed[0].claim).await.unwrap());
    assert_eq!(events(claimed[0].task.id).await, ["scheduled", "claimed", "done"]);
    // Dead ones stay for ever by themselves, and say so.
    let keep = Keep::new().dead(secs(60));
    world.scheduler.keep([("pulled".into(), keep)]).unwrap();
    let pulled = NewTask::new("pulled", &1);
    let pulled = world.scheduler.schedule(pulled).await.unwrap().task().id;
    let claimed = claims.take(&["pulled".into()], 1, secs(30), "me").await.unwrap();
    assert!(claims.discard(claimed[0].claim, "no use").await.unwrap());
    let explained = world.scheduler.explain(pulled).await.unwrap().unwrap();
    let removed = at(world.now() + 60_000);
    let said = format!("no use. It is removed after {removed}, unless it is redriven or dismissed before.");
    assert!(explained.words[0].ends_with(&said), "{explained:?}");
    // Of this one, which was named before, what the scheduler says.
    let done = schedule(&world, 1).await;
    world.pass(ms(1)).await;
    assert_eq!(events(done.id).await, ["scheduled"]);
    let twice = [(kind.clone(), Keep::new()), (kind, Keep::new())];
    assert!(world.scheduler.keep(twice).is_err());
    assert!(world.scheduler.keep([("".into(), Keep::new())]).is_err());
}
