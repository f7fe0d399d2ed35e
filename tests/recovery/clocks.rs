//! Tests workers whose own clock is wrong.

use std::time::Duration;

use delayline::clock::Clock;
use delayline::{NewTask, Outcome, Scheduler, Worker};
use tokio::sync::mpsc;

use crate::service::Service;

const KIND: &str = "order.cancel";
const TEN_MINUTES: i64 = 600_000;

pub(crate) async fn a_worker_whose_clock_is_fast_is_not_early_and_goes_on<S: Service>(_: &str, service: S) {
    worker_off_by(TEN_MINUTES, service).await;
}

pub(crate) async fn a_worker_whose_clock_is_slow_is_not_early_and_goes_on<S: Service>(_: &str, service: S) {
    worker_off_by(-TEN_MINUTES, service).await;
}

/// Runs tasks with due times of every origin by a worker whose clock is ahead by so much.
async fn worker_off_by<S: Service>(millis: i64, service: S) {
    let store = service.store();
    let clock = Clock::system().skewed(millis);
    let scheduler = Scheduler::builder(store.clone()).clock(clock).build().unwrap();
    let (ran, mut runs) = mpsc::unbounded_channel();
    let handler_store = store.clone();
    let worker =
        Worker::new(&scheduler)
            .lease(Duration::from_secs(2))
            .handle(KIND, move |name: String, context| {
                let (ran, store) = (ran.clone(), handler_store.clone());
                async move {
                    let early = context.due_at().millis_since(store.now().await?);
                    ran.send((name.clone(), early, context.lateness(), context.attempt()))
                        .unwrap();
                    // Longer than a lease, which is renewed.
                    if name == "long" {
                        tokio::time::sleep(Duration::from_secs(5)).await;
                    }
                    if name == "again" && context.task().version < 4 {
                        return Ok(Outcome::Again(Duration::from_millis(300)));
                    }
                    Ok(Outcome::Done)
                }
            });
    let now = store.now().await.unwrap();
    let tasks = [
        NewTask::new(KIND, "now"),
        NewTask::new(KIND, "long"),
        NewTask::new(KIND, "again"),
        NewTask::new(KIND, "after").after(Duration::from_millis(700)),
        NewTask::new(KIND, "at").at(now.after(Duration::from_millis(900))),
        NewTask::new(KIND, "moved")
            .after(Duration::from_secs(3_600))
            .key("moved"),
        NewTask::new(KIND, "long after").after(Duration::from_secs(4)),
    ];
    let _ = scheduler.schedule_all(tasks).await.unwrap();
    let at = now.after(Duration::from_millis(1_500));
    assert!(scheduler.reschedule((KIND, "moved"), at).await.unwrap().is_done());

    let all = async {
        let mut seen = Vec::new();
        while seen.len() < 8 {
            seen.push(runs.recv().await.unwrap());
        }
        while scheduler.stats().done < 8 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (name, early, lateness, attempt) in &seen {
            assert!(*early <= 0, "{name} was {early} ms early");
            // A clock that is off shows here by ten minutes; a busy machine does not.
            assert!(
                *lateness < Duration::from_secs(300),
                "{name} was {lateness:?} late"
            );
            assert_eq!(*attempt, 1, "{name}");
        }
        let mut names: Vec<_> = seen.iter().map(|(name, ..)| name.as_str()).collect();
        names.sort();
        let expected = [
            "after",
            "again",
            "again",
            "at",
            "long",
            "long after",
            "moved",
            "now",
        ];
        assert_eq!(names, expected);
    };
    // The line of each task is checked at the end, within the worker's life.
    let (sent, done) = tokio::sync::oneshot::channel();
    let worker = tokio::spawn(worker.run_until(async move {
        let _ = done.await;
    }));
    all.await;
    sent.send(()).unwrap();
    worker.await.unwrap().unwrap();
    let stats = scheduler.stats();
    assert_eq!((stats.lost_claims, stats.expired, stats.done), (0, 0, 8));
}
