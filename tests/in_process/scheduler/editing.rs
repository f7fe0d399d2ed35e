//! Another payload: the task runs once, at the time that it has, with what it was given last.

use std::collections::BTreeMap;

use delayline::store::{Expect, History};
use delayline::{Answer, Edit, Error, NewTask, Scheduler, Shift, Task};

use super::moving::done;
use crate::support::{KIND, Op, Setup, World, at, ms, secs};

async fn scheduled(world: &World) -> Task {
    let task = NewTask::new(KIND, &1)
        .key("k")
        .header("traceparent", "00-1")
        .after(secs(10));
    world.scheduler.schedule(task).await.unwrap().task().clone()
}

#[tokio::test(start_paused = true)]
async fn it_runs_once_at_its_time_with_the_new_payload() {
    let world = World::with_levels("1s 5s 10s");
    let _worker = world.work();
    let before = scheduled(&world).await;
    world.pass(secs(3)).await;
    let edited = done(
        world
            .scheduler
            .edit((KIND, "k"), Edit::payload(&2))
            .await
            .unwrap(),
    );
    assert_eq!(edited.payload, b"2");
    let kept = |task: &Task| {
        (
            task.id,
            task.due_at,
            task.planned_at,
            task.headers.clone(),
            task.attempt,
        )
    };
    assert_eq!(kept(&edited), kept(&before));
    world.pass(secs(60)).await;
    let [run] = &world.runs.all()[..] else {
        panic!("{:?}", world.runs.all());
    };
    assert_eq!((run.at, &*run.task.payload), (10_000, b"2".as_slice()));
}

#[tokio::test(start_paused = true)]
async fn a_payload_and_a_time_are_changed_in_one_step() {
    let world = World::with_levels("1s 5s 10s");
    let _worker = world.work();
    let row = scheduled(&world).await;
    let edit = Edit::payload_bytes("21").at(at(4_000));
    let edited = done(world.scheduler.edit(row.id, edit).await.unwrap());
    assert_eq!((edited.version, edited.due_at), (2, at(4_000)));
    let again = Edit::payload_bytes("22").after(secs(7));
    done(world.scheduler.edit(row.id, again).await.unwrap());
    world.pass(secs(60)).await;
    let [run] = &world.runs.all()[..] else {
        panic!("{:?}", world.runs.all());
    };
    assert_eq!((run.at, &*run.task.payload), (7_000, b"22".as_slice()));
}

#[tokio::test(start_paused = true)]
async fn a_move_between_its_look_and_its_write_stands() {
    let world = World::new();
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.store.hold(Op::Change);
    let edit = tokio::spawn({
        let scheduler = world.scheduler.clone();
        async move { scheduler.edit(row.id, Edit::payload(&2)).await }
    });
    world.pass(ms(1)).await;
    let elsewhere = Scheduler::builder(std::sync::Arc::new(world.rows.clone()))
        .clock(world.clock.clone())
        .build()
        .unwrap();
    done(elsewhere.shift(row.id, Shift::Later(secs(5))).await.unwrap());
    world.store.free(Op::Change);
    let edited = done(edit.await.unwrap().unwrap());
    assert_eq!((edited.due_at, &*edited.payload), (at(15_000), b"2".as_slice()));
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [15_000]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_edited_is_told_and_left() {
    let world = World::new();
    let edit = || Edit::payload(&2);
    let scheduler = &world.scheduler;
    assert_eq!(
        scheduler.edit((KIND, "k"), edit()).await.unwrap(),
        Answer::NotFound
    );
    let row = scheduled(&world).await;
    let past = scheduler
        .edit_if(row.id, Expect::Version(7), edit())
        .await
        .unwrap();
    assert_eq!(past, Answer::Conflict(row.clone()));
    let moved = Expect::Due(row.due_at.shifted(1));
    let answer = scheduler.edit_if(row.id, moved, edit()).await.unwrap();
    assert_eq!(answer, Answer::Conflict(row.clone()));
    done(scheduler.run_now(row.id).await.unwrap());
    world.claim_elsewhere("other").await;
    let running = world.row(row.id).await;
    assert_eq!(
        scheduler.edit(row.id, edit()).await.unwrap(),
        Answer::TooLate(running)
    );
    let timed = scheduler.edit(row.id, edit().after(secs(1))).await.unwrap();
    assert!(matches!(timed, Answer::TooLate(_)), "{timed:?}");
    let other = scheduler
        .schedule(NewTask::new(KIND, &1))
        .await
        .unwrap()
        .task()
        .id;
    done(scheduler.cancel(other).await.unwrap());
    let ended = scheduler.edit(other, edit()).await.unwrap();
    assert!(matches!(ended, Answer::Finished(_)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_used_is_refused() {
    let world = World::new();
    let row = scheduled(&world).await;
    let keys = BTreeMap::from([((1, 2), 3)]);
    let refused = world.scheduler.edit((KIND, "k"), Edit::payload(&keys)).await;
    assert!(matches!(refused, Err(Error::Encode { .. })), "{refused:?}");
    let small = world.scheduler.payload_limit(3);
    let refused = small.edit(row.id, Edit::payload_bytes("four")).await;
    assert!(
        matches!(refused, Err(Error::Invalid { field: "payload", .. })),
        "{refused:?}"
    );
    assert_eq!(world.row(row.id).await, row);
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_noted_with_its_actor_and_its_reason() {
    let noted = History::Changes;
    let world = Setup {
        noted,
        ..Setup::default()
    }
    .build();
    let row = scheduled(&world).await;
    let scheduler = world.scheduler.by("cli").because("another address");
    done(scheduler.edit(row.id, Edit::payload(&2)).await.unwrap());
    let explained = world.scheduler.explain(row.id).await.unwrap().unwrap();
    let last = explained.history.last().unwrap();
    let told = (last.event.as_str(), last.actor.as_deref(), last.reason.as_deref());
    assert_eq!(told, ("edited", Some("cli"), Some("another address")));
    assert_eq!((last.due_before, last.due_at), (Some(row.due_at), row.due_at));
    // The wake-up that was sent for it is the one that is on its way.
    assert_eq!(explained.wake.unwrap().arrives_at, row.due_at);
}
