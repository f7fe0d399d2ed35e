//! Tests many workers on one table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use delayline::store::{Page, Target, When};
use delayline::{Answer, Error, NewTask, Outcome, Scheduler, State, TaskId, Worker, defaults};

use crate::child::{Process, say};
use crate::killed::scheduler;
use crate::service::Service;

const KIND: &str = "order.cancel";
/// The kind that is moved while the workers run.
const OTHER: &str = "order.remind";
const TASKS: usize = 20_000;
const PROCESSES: usize = 4;
const WORKERS: usize = 2;

/// In the child: workers that print what they run, until nothing is left, and then how many errors their verbs had.
pub(crate) async fn work<S: Service>(service: S) {
    let left = Arc::new(AtomicUsize::new(0));
    let mut working = Vec::new();
    for _ in 0..WORKERS {
        let scheduler = scheduler(&service);
        let ran = left.clone();
        let worker = Worker::new(&scheduler).handle(KIND, move |(), context| {
            let ran = ran.clone();
            async move {
                ran.fetch_add(1, Ordering::Relaxed);
                say(&context.id().to_string());
                Ok(Outcome::Done)
            }
        });
        let ends = {
            let scheduler = scheduler.clone();
            async move {
                let mut errors = 0;
                while is_any(&scheduler, State::Scheduled).await || is_any(&scheduler, State::Running).await {
                    errors += move_others(&scheduler).await;
                }
                say(&format!("errors: {errors}"));
            }
        };
        working.push(tokio::spawn(worker.run_until(ends)));
    }
    for worker in working {
        worker.await.unwrap().unwrap();
    }
}

async fn is_any(scheduler: &Scheduler, state: State) -> bool {
    let page = Page::new(KIND, state).limit(1);
    !scheduler.list(&page).await.unwrap().is_empty()
}

/// Every process changes the same rows at the same time, in any order; returns how many errors a caller got.
async fn move_others(scheduler: &Scheduler) -> usize {
    let mut keys: Vec<String> = (0..50).map(|key| key.to_string()).collect();
    fastrand::shuffle(&mut keys);
    let mut tasks = Vec::new();
    for key in &keys {
        let task = NewTask::new(OTHER, "").key(key.as_str());
        tasks.push(task.after(Duration::from_secs(3_600)).replace());
    }
    let replaced = unless_held_up(scheduler.schedule_all(tasks)).await;
    fastrand::shuffle(&mut keys);
    let mut moves: Vec<(Target, When)> = Vec::new();
    for key in &keys {
        moves.push(((OTHER, key.as_str()).into(), Duration::from_secs(7_200).into()));
    }
    let moved = unless_held_up(scheduler.reschedule_all(moves)).await;
    fastrand::shuffle(&mut keys);
    let mut cancels: Vec<Target> = Vec::new();
    for key in &keys[..10] {
        cancels.push((OTHER, key.as_str()).into());
    }
    let cancelled = unless_held_up(scheduler.cancel_all(cancels)).await;
    let errors = [replaced, moved, cancelled];
    errors
        .into_iter()
        .flatten()
        .inspect(|error| eprintln!("a verb failed: {error}"))
        .count()
}

/// Returns the error of a verb, except that others held its rows for three seconds, or that the store took longer than its
/// limit to answer: they may on a busy machine.
async fn unless_held_up<T>(verb: impl Future<Output = Result<T, Error>>) -> Option<Error> {
    let began = Instant::now();
    let error = verb.await.err()?;
    let (said, waited) = (error.to_string(), began.elapsed());
    let is_locked = said.contains("has the row locked") && waited >= Duration::from_secs(3);
    let is_slow = said.contains("no answer within") && waited >= defaults::STORE_TIMEOUT;
    (!is_locked && !is_slow).then_some(error)
}

pub(crate) async fn eight_workers_in_four_processes_run_each_task_once<S: Service>(name: &str, service: S) {
    let scheduler = scheduler(&service);
    // Due when all workers are there.
    let due = Duration::from_secs(4);
    let tasks = (0..TASKS).map(|_| NewTask::new(KIND, &()).after(due));
    let ids: Vec<TaskId> = scheduler
        .schedule_all(tasks)
        .await
        .unwrap()
        .iter()
        .map(|answer| answer.task().id)
        .collect();

    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut process = Process::start(name, service.url(), "work");
            tokio::task::spawn_blocking(move || {
                let mut said = Vec::new();
                while let Some(line) = process.says() {
                    said.push(line);
                }
                assert!(process.has_ended_well(), "a process of workers failed");
                said
            })
        })
        .collect();
    let mut runs: BTreeMap<TaskId, usize> = BTreeMap::new();
    let mut ends = 0;
    for process in processes {
        for line in process.await.unwrap() {
            if let Some(errors) = line.strip_prefix("errors: ") {
                assert_eq!(errors, "0", "a verb of one's own transaction gave an error");
                ends += 1;
            } else {
                *runs.entry(line.parse().unwrap()).or_default() += 1;
            }
        }
    }
    assert_eq!(ends, PROCESSES * WORKERS);
    let twice = runs.values().filter(|runs| **runs > 1).count();
    let lost = ids.iter().filter(|id| !runs.contains_key(id)).count();
    assert_eq!((runs.len(), twice, lost), (TASKS, 0, 0), "tasks run, twice, lost");
    let cancelled = scheduler.cancel(ids[0]).await.unwrap();
    assert!(matches!(cancelled, Answer::Finished(_)), "{cancelled:?}");
}
