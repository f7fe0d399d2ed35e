//! The end of a claim is written, however often the store fails, and counted once.

use delayline::{Error, NewTask, Outcome, Policy, State, Task, Worker};

use crate::support::{KIND, Op, Running, World, ms, secs};
use crate::worker::leases::{Ended, schedule, working};
use crate::worker::outcomes::worker_that;

fn refused() -> Error {
    Error::Store {
        store: "meddled",
        transient: false,
        source: "refused".into(),
    }
}

/// A worker that answers as the payload says, with alarms counted by the channel.
fn answering(world: &World) -> (Worker, tokio::sync::mpsc::UnboundedReceiver<Task>) {
    let (send, alarms) = tokio::sync::mpsc::unbounded_channel();
    let policy = Policy::new().backoff(secs(60), secs(60));
    let runs = world.runs.clone();
    let worker = worker_that(world, policy, move |context| {
        let word: String = serde_json::from_slice(context.payload()).unwrap();
        let first = runs.of(context.id()).len() == 1;
        Box::pin(async move {
            Ok(match word.as_str() {
                "retry" if first => Outcome::Retry("no".into()),
                "snooze" if first => Outcome::Snooze(secs(5)),
                "again" if first => Outcome::Again(secs(5)),
                "discard" => Outcome::Discard("no".into()),
                _ => Outcome::Done,
            })
        })
    });
    (worker.on_dead(move |task| drop(send.send(task.clone()))), alarms)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_for_a_lease_is_run_again() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(3)));
    world.store.fail(Op::Settle, 20);
    let row = schedule(&world, 0).await;
    world.pass(secs(3)).await;
    assert_eq!(world.runs.times(), [0]);
    world.settle().await;
    // What cannot be settled is not kept from others for longer than a lease: this worker's own sweep has claimed it again.
    assert!(world.runs.count() >= 2, "{:?}", world.runs.times());
    assert_eq!(world.row(row.id).await.state, State::Done);
    // The first end is tried for as long, and refused.
    world.pass(secs(2)).await;
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.expired, stats.lost_claims), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_the_store_was_away_for_longer_than_a_lease_is_not_run_again() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(3)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 1).await;
    world.pass(secs(1)).await;
    for op in [Op::Settle, Op::Renew, Op::Sweep] {
        world.store.fail(op, 1_000);
    }
    world.pass(secs(30)).await;
    assert_eq!((world.runs.count(), ended.times().len()), (1, 1));
    assert_eq!(world.row(row.id).await.state, State::Running);
    // The sweep is repeated more often than the end is.
    world.store.mend();
    world.settle().await;
    assert_eq!(world.runs.count(), 1);
    let row = world.row(row.id).await;
    assert_eq!((row.state, row.version), (State::Done, 3));
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_answer_was_lost_is_not_a_lost_claim_and_counts_once() {
    for find_fails in [0, 3] {
        let world = World::new();
        let (worker, mut alarms) = answering(&world);
        let _worker = Running::start(worker.name("same"));
        for (word, runs) in [
            ("done", 1),
            ("discard", 1),
            ("retry", 2),
            ("snooze", 2),
            ("again", 2),
        ] {
            world.store.lose_answers(Op::Settle, 2);
            world.store.fail(Op::Find, find_fails);
            let before = world.runs.count();
            let row = world.scheduler.schedule(NewTask::new(KIND, word)).await.unwrap();
            let id = row.task().id;
            world.settle().await;
            world.pass(secs(3)).await;
            let told = format!("{word}, find fails {find_fails} times");
            assert_eq!(world.runs.count() - before, runs, "{told}");
            let expected = if word == "discard" {
                State::Dead
            } else {
                State::Done
            };
            assert_eq!(world.row(id).await.state, expected, "{told}");
            let alarm = alarms.try_recv().ok().map(|task| task.id);
            assert_eq!(alarm, (word == "discard").then_some(id), "{told}");
            assert!(alarms.try_recv().is_err(), "once: {told}");
        }
        let stats = world.scheduler.stats();
        assert_eq!((stats.done, stats.dead), (5, 1), "again counts twice");
        assert_eq!((stats.retried, stats.snoozed, stats.lost_claims), (1, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn one_end_that_the_store_refuses_does_not_hold_up_the_others() {
    let world = World::new();
    let (worker, _alarms) = answering(&world);
    let _worker = Running::start(worker.lease(secs(5)));
    // Three together, then the first of the three by itself.
    world.store.fail_with(Op::Settle, 2, refused);
    let tasks = (0..3).map(|_| NewTask::new(KIND, "done"));
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.pass(secs(1)).await;
    assert_eq!(world.count(State::Done).await, 2);
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.lost_claims), (2, 1));
    // Its lease is not renewed for ever: it runs again.
    world.settle().await;
    assert_eq!(world.count(State::Done).await, 3);
    assert_eq!(world.runs.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_row_is_locked_holds_up_no_other_and_is_written_when_it_is_free() {
    let world = World::new();
    let (worker, _alarms) = answering(&world);
    let handler = world.runs.handler(&world.store_clock);
    let _worker = Running::start(worker.handle("other", handler).lease(secs(30)));
    let locked = NewTask::new(KIND, "done").after(ms(10));
    let locked = world.scheduler.schedule(locked).await.unwrap().task().id;
    world.store.lock(locked);
    let others = (0..100).map(|n| NewTask::new("other", &n));
    world.scheduler.schedule_all(others).await.unwrap();
    world.pass(secs(1)).await;
    assert_eq!(world.rows_in("other", State::Done).await.len(), 100);
    assert_eq!(world.row(locked).await.state, State::Running);
    world.pass(secs(11)).await;
    world.store.unlock(locked);
    world.pass(secs(5)).await;
    assert_eq!(world.row(locked).await.state, State::Done);
    assert_eq!(world.runs.of(locked).len(), 1);
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.lost_claims), (101, 0));
}

#[tokio::test(start_paused = true)]
async fn ends_that_took_effect_before_the_store_refused_are_not_lost_claims() {
    let world = World::new();
    let (worker, mut alarms) = answering(&world);
    let _worker = Running::start(worker);
    world.store.lose_answers(Op::Settle, 1);
    world.store.fail_with(Op::Settle, 1, refused);
    let tasks = (0..3).map(|_| NewTask::new(KIND, "discard"));
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.settle().await;
    world.pass(secs(3)).await;
    let stats = world.scheduler.stats();
    assert_eq!((stats.dead, stats.lost_claims), (3, 0));
    for _ in 0..3 {
        alarms.try_recv().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn ends_are_written_in_batches() {
    let world = World::new();
    let (worker, _alarms) = answering(&world);
    let tasks = (0..2_000).map(|_| NewTask::new(KIND, "done"));
    world.scheduler.schedule_all(tasks).await.unwrap();
    let _worker = Running::start(worker);
    world.settle().await;
    let calls = world.store.calls(Op::Settle);
    assert_eq!(calls.iter().sum::<usize>(), 2_000);
    assert!(calls.len() <= 60, "{} calls: {calls:?}", calls.len());
}

#[tokio::test(start_paused = true)]
async fn ends_that_the_store_refuses_for_a_moment_are_written_when_it_does_not() {
    let world = World::new();
    let (worker, _alarms) = answering(&world);
    let _worker = Running::start(worker.lease(secs(5)));
    let tasks = (0..50).map(|_| NewTask::new(KIND, "done"));
    // As by a table that is being renamed: whatever is asked.
    world.store.fail_with(Op::Settle, 25, refused);
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.settle().await;
    assert_eq!(world.count(State::Done).await, 50);
    assert_eq!(world.runs.count(), 50, "none runs a second time");
    assert_eq!(world.scheduler.stats().lost_claims, 0);
}
