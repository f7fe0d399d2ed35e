//! Kills workers, one after the other.

use std::time::Duration;

use delayline::{NewTask, Scheduler, TaskId};
use tokio::time::{interval, sleep};

use crate::process::Process;
use crate::shop::KIND;
use crate::{rate, setting};

const PROCESSES: usize = 4;
const KILLED_EVERY: Duration = Duration::from_secs(5);

/// How many tasks are scheduled ten times a second. Each is written by four processes, so they are fewer than elsewhere.
fn tasks() -> usize {
    rate() / 50
}

/// The result when all tasks are scheduled.
pub(crate) struct Left {
    /// Of all tasks.
    pub(crate) ids: Vec<TaskId>,
    pub(crate) workers: Vec<Process>,
    /// How many workers were killed.
    pub(crate) killed: usize,
}

/// Schedules tasks for 0.2 to 5 s, for as long as servers are away elsewhere, while one of four workers after the other is
/// killed and another one started.
pub(crate) async fn schedule_under_kills(scheduler: Scheduler, start: impl Fn() -> Process) -> Left {
    let all = tasks() * 10 * setting("DELAYLINE_OUTAGE_SECONDS").unwrap_or(15);
    let scheduling = tokio::spawn(async move {
        let mut ids = Vec::new();
        let mut tick = interval(Duration::from_secs(1) / 10);
        while ids.len() < all {
            tick.tick().await;
            let delays = (0..tasks()).map(|_| Duration::from_millis(fastrand::u64(200..5_000)));
            let tasks = delays.map(|delay| NewTask::new(KIND, &()).after(delay));
            let answers = scheduler.schedule_all(tasks).await.unwrap();
            ids.extend(answers.iter().map(|answer| answer.task().id));
        }
        scheduler.close().await.unwrap();
        ids
    });
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut killed = 0;
    while !scheduling.is_finished() {
        sleep(KILLED_EVERY).await;
        let worker = &mut workers[killed % PROCESSES];
        worker.kill();
        *worker = start();
        killed += 1;
    }
    // The last one has no successor: the others take over its tasks.
    workers.remove(killed % PROCESSES).kill();
    killed += 1;
    let ids = scheduling.await.unwrap();
    Left { ids, workers, killed }
}
