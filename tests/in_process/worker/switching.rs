//! Other backends for the tasks that are there: what one scheduler has sent, the next knows nothing of.

use std::collections::BTreeMap;
use std::sync::Arc;

use delayline::backend::{LevelsBackend, WheelBackend};
use delayline::{NewTask, Scheduler, State, Task, TaskId, Worker};

use crate::support::{KIND, ROCKETMQ, Running, START, World, ms, secs};

const TASKS: u64 = 200;

/// One process: a scheduler and its worker.
struct Process {
    scheduler: Scheduler,
    worker: Running,
}

impl Process {
    fn start(world: &World, scheduler: Scheduler) -> Self {
        let worker = Worker::new(&scheduler).handle(KIND, world.runs.handler(&world.store_clock));
        let worker = Running::start(worker);
        Self { scheduler, worker }
    }

    /// With levels, and a precise backend, of its own: what it has sent ends with it.
    fn with_levels(world: &World) -> Self {
        let levels = LevelsBackend::with_clock(ROCKETMQ.parse().unwrap(), world.clock.clone());
        let builder = Scheduler::builder(world.store.clone())
            .clock(world.clock.clone())
            .carrier(Arc::new(levels))
            .precise(Arc::new(WheelBackend::with_clock(world.clock.clone())));
        Self::start(world, builder.build().unwrap())
    }

    /// With the table alone.
    fn with_the_table(world: &World) -> Self {
        let builder = Scheduler::builder(world.store.clone()).clock(world.clock.clone());
        Self::start(world, builder.build().unwrap())
    }

    /// Schedules tasks that are due within the next two minutes.
    async fn schedule(&self) -> Vec<Task> {
        let tasks = (0..TASKS).map(|n| NewTask::new(KIND, &n).after(ms(n * 600 + n % 7 * 13)));
        let scheduled = self.scheduler.schedule_all(tasks).await.unwrap();
        scheduled
            .into_iter()
            .map(|answer| answer.task().clone())
            .collect()
    }

    async fn stop(self) {
        self.worker.stop().await.unwrap();
    }

    /// Kills it: what it holds in memory is gone, and no other process was told.
    async fn crash(self) {
        self.worker.crash().await;
    }
}

/// Each task ran once, not before its time, and not long after it.
fn assert_on_time(world: &World, tasks: &[Task]) {
    let runs = world.runs.all();
    let ran: BTreeMap<TaskId, _> = runs.iter().map(|run| (run.task.id, run)).collect();
    assert_eq!((runs.len(), ran.len()), (tasks.len(), tasks.len()));
    for task in tasks {
        let run = ran[&task.id];
        let late = run.at - (task.due_at.as_millis() - START);
        assert!((0..=1_000).contains(&late), "{late} ms late: {run:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_that_levels_carry_are_taken_over_by_the_table_and_back() {
    for is_crash in [false, true] {
        let world = World::new();
        let end = async |process: Process| match is_crash {
            false => process.stop().await,
            true => process.crash().await,
        };
        let first = Process::with_levels(&world);
        let mut tasks = first.schedule().await;
        world.pass(ms(30_200)).await;
        assert!(first.scheduler.stats().hops > 0, "some are on their way");
        end(first).await;

        let second = Process::with_the_table(&world);
        tasks.extend(second.schedule().await);
        world.pass(ms(30_700)).await;
        end(second).await;

        let third = Process::with_levels(&world);
        tasks.extend(third.schedule().await);
        world.pass(ms(30_100)).await;
        end(third).await;

        let fourth = Process::with_the_table(&world);
        world.settle().await;
        // Nothing comes after.
        world.pass(secs(200)).await;
        assert_on_time(&world, &tasks);
        assert_eq!(world.count(State::Done).await, tasks.len());
        end(fourth).await;
    }
}
