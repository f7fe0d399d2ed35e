//! What callers ask for, and what is answered.

use delayline::store::{Action, Expect, When};
use delayline::{Edit, NewTask, Shift};

use crate::metrics::recorder::{Recorder, of};
use crate::support::{KIND, Op, World, secs};

#[tokio::test(start_paused = true)]
async fn each_verb_is_counted_by_its_answer() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let scheduler = &world.scheduler;
    let task = |key: &str| NewTask::new(KIND, &1).key(key).after(secs(60));
    scheduler
        .schedule_all([task("1"), task("2"), task("3")])
        .await
        .unwrap();
    scheduler.schedule(task("1")).await.unwrap();
    scheduler.schedule(task("1").replace()).await.unwrap();
    let key = |key: &str| (KIND, key.to_owned());
    let _ = scheduler.reschedule(key("1"), secs(90)).await.unwrap();
    let _ = scheduler.shift(key("1"), Shift::Later(secs(1))).await.unwrap();
    let _ = scheduler.shift(key("4"), Shift::Later(secs(1))).await.unwrap();
    let _ = scheduler.run_now(key("2")).await.unwrap();
    world.claim_elsewhere("other").await;
    let _ = scheduler.cancel(key("2")).await.unwrap();
    scheduler.schedule(task("2")).await.unwrap();
    let due = world.row(key("1")).await.due_at;
    let changes = [
        (key("1"), Expect::Version(1), Action::Cancel),
        (key("1"), Expect::Due(due), Action::Shift(Shift::Earlier(secs(1)))),
        (
            key("1"),
            Expect::Anything,
            Action::Reschedule(When::After(secs(5))),
        ),
        (key("3"), Expect::Anything, Action::Cancel),
        (key("3"), Expect::Anything, Action::Cancel),
    ];
    let changes = changes.map(|(target, expect, action)| (target.into(), expect, action));
    scheduler.change_each(changes).await;
    let _ = scheduler.edit(key("1"), Edit::payload(&2)).await.unwrap();
    let _ = scheduler
        .edit(key("4"), Edit::payload(&2).after(secs(1)))
        .await
        .unwrap();
    let _ = scheduler.redrive(key("1")).await.unwrap();
    let _ = scheduler.dismiss(key("1")).await.unwrap();
    assert_eq!(
        recorder.recorded().counts("delayline.verbs"),
        of([
            // The answer, then the verb.
            ("new schedule", 3),
            ("existing schedule", 1),
            ("replaced schedule", 1),
            ("running schedule", 1),
            ("done reschedule", 2),
            ("done shift", 2),
            ("not_found shift", 1),
            ("done edit", 1),
            ("not_found edit", 1),
            ("done run_now", 1),
            ("too_late cancel", 1),
            ("conflict cancel", 1),
            ("done cancel", 1),
            ("finished cancel", 1),
            ("conflict redrive", 1),
            ("conflict dismiss", 1),
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_answered_is_counted_as_such() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let tasks = || (0..3).map(|n| NewTask::new(KIND, &n).key(n.to_string()).after(secs(60)));
    world.store.fail(Op::Insert, 1);
    world.scheduler.schedule_all(tasks()).await.unwrap_err();
    world.store.fail(Op::Change, 1);
    world.scheduler.cancel((KIND, "0")).await.unwrap_err();
    // What cannot be used is no matter of the store's.
    world.scheduler.cancel((KIND, "")).await.unwrap_err();
    assert_eq!(
        recorder.recorded().counts("delayline.verbs"),
        of([("error schedule", 3), ("error cancel", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn a_shift_that_others_come_before_is_one_verb() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    world
        .scheduler
        .schedule(NewTask::new(KIND, &1).key("1").after(secs(60)))
        .await
        .unwrap();
    // Between the look and the change another one moves it.
    world.store.hold(Op::Change);
    let scheduler = world.scheduler.clone();
    let shifting = tokio::spawn(async move { scheduler.shift((KIND, "1"), Shift::Later(secs(1))).await });
    world.pass(secs(1)).await;
    let other = world.another_scheduler_over(std::sync::Arc::new(world.rows.clone()));
    let _ = other.reschedule((KIND, "1"), secs(100)).await.unwrap();
    world.store.free(Op::Change);
    assert!(shifting.await.unwrap().unwrap().is_done());
    assert_eq!(
        recorder.recorded().counts("delayline.verbs"),
        of([("new schedule", 1), ("done reschedule", 1), ("done shift", 1)])
    );
}
