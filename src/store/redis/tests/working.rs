//! Workers and schedulers over the store, each as in a process of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::consistent::assert_consistent;
use super::*;
use crate::{Context, Failure, NewTask, Outcome, Scheduler, Worker};

/// A worker of a process of its own, which says what it runs; and what ends it.
pub(super) fn work(
    store: RedisStore,
    name: &str,
    ran: &mpsc::UnboundedSender<(u64, String)>,
) -> (oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let scheduler = Scheduler::builder(Arc::new(store)).build().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (ran, of) = (ran.clone(), name.to_owned());
    let worker = Worker::new(&scheduler)
        .name(name)
        .handle(KIND, move |number: u64, _: Context| {
            let (ran, of) = (ran.clone(), of.clone());
            async move {
                drop(ran.send((number, of)));
                Ok::<_, Failure>(Outcome::Done)
            }
        });
    let running = tokio::spawn(async move {
        worker.run_until(async { drop(stopped.await) }).await.unwrap();
    });
    (stop, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_runs_once_whichever_worker_takes_it() {
    const TASKS: u64 = 300;
    for shards in [1, 16] {
        let server = RedisServer::start();
        let scheduler = Scheduler::builder(Arc::new(open(&server, shards)))
            .build()
            .unwrap();
        let (ran, mut runs) = mpsc::unbounded_channel();
        let workers = ["one", "two"].map(|name| work(open(&server, shards), name, &ran));
        for number in 0..TASKS {
            // At once, within the look ahead, and beyond it.
            let delay = Duration::from_millis([0, 40, 700, 2_600][number as usize % 4]);
            let task = NewTask::new(KIND, &number).after(delay);
            let task = match number % 3 {
                0 => task,
                _ => task.key(number.to_string()),
            };
            assert!(matches!(
                scheduler.schedule(task).await.unwrap(),
                Scheduled::New(_)
            ));
        }
        let mut counts = BTreeMap::<u64, usize>::new();
        for _ in 0..TASKS {
            let (number, _) = tokio::time::timeout(Duration::from_secs(60), runs.recv())
                .await
                .expect("every task runs")
                .unwrap();
            *counts.entry(number).or_default() += 1;
        }
        for (stop, running) in workers {
            stop.send(()).unwrap();
            running.await.unwrap();
        }
        assert!(runs.try_recv().is_err());
        assert_eq!(counts, (0..TASKS).map(|number| (number, 1)).collect());
        assert_consistent(&server, shards, &format!("{shards} shards"));
    }
}
