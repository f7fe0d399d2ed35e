//! What a worker asks of the store when there is nothing to do.

use delayline::{NewTask, Scheduler, Worker, defaults};

use crate::support::{KIND, Op, Running, World, ms, secs};

const EVERY_OP: [Op; 13] = [
    Op::Now,
    Op::Insert,
    Op::Change,
    Op::Arrive,
    Op::Hop,
    Op::Ready,
    Op::Sweep,
    Op::Settle,
    Op::Renew,
    Op::Find,
    Op::List,
    Op::Count,
    Op::Purge,
];

/// A scheduler whose precise backend is the table, and a worker beside it.
fn on_the_table(world: &World) -> (Scheduler, Running) {
    let builder = Scheduler::builder(world.store.clone()).clock(world.clock.clone());
    let scheduler = builder.build().unwrap();
    let worker = Worker::new(&scheduler).handle(KIND, world.runs.handler(&world.store_clock));
    (scheduler, Running::start(worker))
}

fn calls(world: &World) -> usize {
    EVERY_OP.map(|op| world.store.calls(op).len()).iter().sum()
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_on_the_table_asks_the_store_twice_a_second() {
    let world = World::new();
    let (scheduler, _worker) = on_the_table(&world);
    scheduler
        .schedule(NewTask::new(KIND, "").after(secs(3_600)))
        .await
        .unwrap();
    world.pass(secs(2)).await;
    let (before, purges) = (calls(&world), world.store.calls(Op::Purge).len());
    world.pass(secs(100)).await;
    let asked = calls(&world) - before - (world.store.calls(Op::Purge).len() - purges);
    assert!((199..=201).contains(&asked), "{asked} calls in 100 s");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_process_is_found_by_the_sweep_and_is_on_time_if_that_is_in_time() {
    let world = World::new();
    let (_, _worker) = on_the_table(&world);
    let builder = Scheduler::builder(world.store.clone()).clock(world.clock.clone());
    let other = builder.build().unwrap();
    world.pass(secs(2)).await;
    let start = world.now();
    for delay in [510, 1_000, 1_999, 5_000] {
        other
            .schedule(NewTask::new(KIND, "").after(ms(delay)))
            .await
            .unwrap();
    }
    world.pass(secs(6)).await;
    assert_eq!(
        world.runs.times(),
        [510, 1_000, 1_999, 5_000].map(|delay| start + delay)
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_process_that_is_due_at_once_waits_for_one_sweep_at_the_most() {
    let world = World::new();
    let (_, _worker) = on_the_table(&world);
    let builder = Scheduler::builder(world.store.clone()).clock(world.clock.clone());
    let other = builder.build().unwrap();
    world.pass(secs(2)).await;
    let sweep = i64::try_from(defaults::SWEEP_EVERY.as_millis()).unwrap();
    // At every distance from a sweep.
    for _ in 0..100 {
        let task = NewTask::new(KIND, "").after(ms(3));
        let task = other.schedule(task).await.unwrap();
        let due = world.now() + 3;
        world.pass(ms(1_005)).await;
        let late = world.runs.of(task.task().id)[0].at - due;
        assert!((0..=sweep).contains(&late), "{late} ms late");
    }
}

#[tokio::test(start_paused = true)]
async fn more_tasks_of_another_process_than_one_look_reads_are_on_time() {
    let world = World::new();
    let (_, _worker) = on_the_table(&world);
    let builder = Scheduler::builder(world.store.clone()).clock(world.clock.clone());
    let other = builder.build().unwrap();
    world.pass(secs(2)).await;
    // All within the time of one look, 12 a ms.
    let count = 3 * 4_096;
    let tasks = (0..count).map(|number| NewTask::new(KIND, "").after(ms(1_100 + number / 12)));
    other.schedule_all(tasks).await.unwrap();
    world.pass(secs(4)).await;
    let runs = world.runs.all();
    assert_eq!(runs.len() as u64, count);
    let latest = runs.iter().map(|run| run.lateness).max().unwrap();
    assert!(latest <= defaults::PRECISE_LATENESS, "{latest:?} late");
}
