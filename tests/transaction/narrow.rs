//! A store with one connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::{Answer, NewTask, Outcome, Scheduler, State, TaskId, Worker};
use tokio::task::JoinSet;

use crate::service::Service;
use crate::verbs::{KIND, every, start};

const CALLERS: u64 = 64;
/// How many tasks each of them schedules.
const TASKS: u64 = 9;

/// What a caller was told of a task: cancelled, or to be run.
type Told = (TaskId, bool);

/// Schedules tasks that are due at once, soon and not for long, and cancels two of three at once.
async fn call(scheduler: Scheduler) -> Vec<Told> {
    let mut told = Vec::new();
    for n in 0..TASKS {
        let delay = [0, 50, 3_600_000][usize::try_from(n % 3).unwrap()];
        let task = NewTask::new(KIND, &n).after(Duration::from_millis(delay));
        let id = scheduler.schedule(task).await.unwrap().task().id;
        // Each of the delays once for every third that is not cancelled, but for those that are too far away.
        let is_kept = n / 3 == n % 3 && delay < 3_600_000;
        let is_cancelled = !is_kept
            && match scheduler.cancel(id).await.unwrap() {
                Answer::Done(_) => true,
                Answer::TooLate(_) | Answer::Finished(_) => false,
                other => panic!("{other:?}"),
            };
        told.push((id, is_cancelled));
    }
    told
}

pub(crate) async fn one_connection_serves_many_callers_and_their_worker<S: Service>(service: S) {
    let scheduler = Scheduler::builder(service.narrow_store().await).build().unwrap();
    let runs: Arc<Mutex<BTreeMap<TaskId, usize>>> = Arc::default();
    let handler_runs = runs.clone();
    let _work = start(Worker::new(&scheduler).handle(KIND, move |_: u64, context| {
        *handler_runs.lock().unwrap().entry(context.id()).or_default() += 1;
        async { Ok(Outcome::Done) }
    }));
    let callers: JoinSet<_> = (0..CALLERS).map(|_| call(scheduler.clone())).collect();
    let told: BTreeMap<_, _> = callers.join_all().await.into_iter().flatten().collect();
    for state in [State::Scheduled, State::Running] {
        while !every(&scheduler, state).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // A task that was given back would be scheduled again, after it was running.
    assert_eq!(every(&scheduler, State::Scheduled).await, []);
    let expected = told.iter().filter(|(_, is_cancelled)| !**is_cancelled);
    let expected: BTreeMap<_, _> = expected.map(|(&id, _)| (id, 1)).collect();
    assert_eq!(told.len() as u64, CALLERS * TASKS);
    assert_eq!(*runs.lock().unwrap(), expected);
    assert_eq!(scheduler.stats().retried, 0);
}
