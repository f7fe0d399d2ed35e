//! A store whose answers take their time: what is reckoned from them is right all the same.

use delayline::{Answer, NewTask, Shift, Task};

use crate::support::{KIND, Op, World, at, ms, secs};

/// In the time between call and answer the store may have read its clock; as long as no answer has come at once, it is
/// believed to have done so not later than this.
const READ_WITHIN: i64 = 5;

async fn schedule(world: &World, seconds: u64) -> Task {
    let task = NewTask::new(KIND, &1).after(secs(seconds));
    world.scheduler.schedule(task).await.unwrap().task().clone()
}

/// What `call` answers, when the answer of the store takes 600 ms.
async fn slowly<T>(world: &World, op: Op, call: impl Future<Output = T>) -> T {
    world.store.hold_answers(op);
    let (answer, ()) = tokio::join!(call, async {
        world.pass(ms(600)).await;
        world.store.free_answers(op);
    });
    answer
}

#[tokio::test(start_paused = true)]
async fn a_new_task_runs_no_later() {
    let world = World::new();
    let _worker = world.work();
    let row = slowly(&world, Op::Insert, schedule(&world, 2)).await;
    assert_eq!((row.due_at, world.now()), (at(2_000), 600));
    world.settle().await;
    assert_eq!(world.runs.times(), [2_000]);
}

#[tokio::test(start_paused = true)]
async fn a_moved_task_runs_no_later() {
    let world = World::new();
    let _worker = world.work();
    let row = schedule(&world, 60).await;
    let moving = world.scheduler.reschedule(row.id, secs(2));
    assert!(slowly(&world, Op::Change, moving).await.unwrap().is_done());
    world.settle().await;
    assert_eq!(world.runs.times(), [2_000]);
}

#[tokio::test(start_paused = true)]
async fn a_time_by_the_calendar_is_reached_no_later() {
    let world = World::new();
    // The first thing asked of the store is its time.
    let due = at(2_000);
    let row = slowly(
        &world,
        Op::Now,
        world.scheduler.schedule(NewTask::new(KIND, &1).at(due)),
    );
    let row = row.await.unwrap().task().clone();
    // 1,405 ms were left, and a wake-up is overdue some 50 ms after its time: both counted from the insert at 600.
    assert_eq!(row.wake_at, Some(at(600 + 1_400 + READ_WITHIN + 50)));
}

#[tokio::test(start_paused = true)]
async fn the_way_back_of_a_claim_is_part_of_its_lateness() {
    let world = World::new();
    let _worker = world.work();
    schedule(&world, 1).await;
    world.pass(ms(900)).await;
    slowly(&world, Op::Arrive, async {}).await;
    world.settle().await;
    let [run] = &world.runs.all()[..] else {
        panic!("it ran once");
    };
    assert_eq!((run.at, run.lateness), (1_500, ms(500)));
}

#[tokio::test(start_paused = true)]
async fn no_task_is_called_overdue_that_only_might_be() {
    let world = World::new();
    let (other, row) = (schedule(&world, 60).await, schedule(&world, 30).await);
    // Before the store reads its clock it waits for 10 s: afterwards it is believed to be 10 s later than it is.
    world.store.hold(Op::Change);
    let (moved, ()) = tokio::join!(world.scheduler.reschedule(other.id, secs(60)), async {
        world.pass(secs(10)).await;
        world.store.free(Op::Change);
    });
    assert!(moved.unwrap().is_done());
    let Answer::Done(moved) = world
        .scheduler
        .shift(row.id, Shift::Earlier(secs(15)))
        .await
        .unwrap()
    else {
        panic!("not moved");
    };
    assert_eq!(moved.due_at, at(15_000));
}
