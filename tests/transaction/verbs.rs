//! Verbs within a transaction.

use std::time::Duration;

use delayline::store::Page;
use delayline::{
    Answer, Edit, Error, NewTask, Outcome, Scheduled, Scheduler, Shift, State, Task, TaskId, Worker,
};
use tokio::sync::mpsc;

use crate::service::Service;

pub(crate) const KIND: &str = "post.publish";
const HOUR: Duration = Duration::from_secs(3_600);
/// A sweep that does not come during a test.
const NEVER: Duration = Duration::from_secs(86_400);

pub(crate) fn scheduler(service: &impl Service) -> Scheduler {
    Scheduler::builder(service.store()).build().unwrap()
}

fn task(key: &str) -> NewTask {
    NewTask::new(KIND, "payload").key(key)
}

/// A worker that tells which tasks it runs, and ends with the returned value.
pub(crate) struct Work {
    pub(crate) runs: mpsc::UnboundedReceiver<TaskId>,
    _working: tokio_task::Aborting,
}

pub(crate) mod tokio_task {
    /// A task that is aborted when this is dropped.
    pub(crate) struct Aborting(pub(crate) tokio::task::JoinHandle<()>);

    impl Drop for Aborting {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
}

pub(crate) fn start(worker: Worker) -> tokio_task::Aborting {
    tokio_task::Aborting(tokio::spawn(async move { worker.run().await.unwrap() }))
}

pub(crate) fn work(scheduler: &Scheduler, sweep_every: Duration) -> Work {
    let (ran, runs) = mpsc::unbounded_channel();
    let worker = Worker::new(scheduler)
        .sweep_every(sweep_every)
        .handle(KIND, move |_: String, context| {
            ran.send(context.id()).unwrap();
            async { Ok(Outcome::Done) }
        });
    Work {
        runs,
        _working: start(worker),
    }
}

pub(crate) async fn every(scheduler: &Scheduler, state: State) -> Vec<Task> {
    let page = Page::new(KIND, state).limit(100);
    scheduler.list(&page).await.unwrap()
}

pub(crate) async fn a_task_of_a_transaction_that_is_rolled_back_never_was<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let mut work = work(&scheduler, Duration::from_millis(50));
    let mut tx = service.begin().await.unwrap();
    service.effect(&mut tx, "post").await.unwrap();
    let receipt = scheduler
        .schedule_in(service.join(&mut tx), task("a"))
        .await
        .unwrap();
    let id = receipt.answer().task().id;
    assert!(matches!(receipt.answer(), Scheduled::New(_)));
    drop((tx, receipt));
    // Once another has run that was scheduled later, this one would have.
    let after = scheduler.schedule(task("b")).await.unwrap().task().id;
    assert_eq!(work.runs.recv().await, Some(after));
    assert_eq!(scheduler.find(id).await.unwrap(), None);
    assert_eq!(service.effects().await, [""; 0]);
    assert_eq!(scheduler.stats().sent_precise, 1, "nothing was sent for it");
}

pub(crate) async fn a_committed_task_runs_by_its_receipt_alone<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let mut work = work(&scheduler, NEVER);
    // The worker has claimed all that was due when it started once it has run this.
    let first = scheduler.schedule(task("first")).await.unwrap().task().id;
    assert_eq!(work.runs.recv().await, Some(first));
    let mut tx = service.begin().await.unwrap();
    let soon = task("a").after(Duration::from_millis(200));
    let receipt = scheduler.schedule_in(service.join(&mut tx), soon).await.unwrap();
    service.commit(tx).await.unwrap();
    let scheduled = scheduler.committed(receipt).await;
    assert_eq!(work.runs.recv().await, Some(scheduled.task().id));
    // On a busy machine one may come a moment early, and is sent once more.
    let sent = scheduler.stats().sent_precise;
    assert!(sent >= 2, "{sent}");
}

pub(crate) async fn a_committed_task_runs_without_its_receipt<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let mut work = work(&scheduler, Duration::from_millis(50));
    let mut tx = service.begin().await.unwrap();
    let batch = [task("a"), task("b")];
    let receipt = scheduler
        .schedule_all_in(service.join(&mut tx), batch)
        .await
        .unwrap();
    let mut ids: Vec<_> = receipt.answer().iter().map(|answer| answer.task().id).collect();
    service.commit(tx).await.unwrap();
    drop(receipt);
    let mut ran = vec![work.runs.recv().await.unwrap(), work.runs.recv().await.unwrap()];
    ids.sort();
    ran.sort();
    assert_eq!(ran, ids);
}

/// Every verb within one transaction, each on a task of its own.
async fn every_verb<S: Service>(service: &S, scheduler: &Scheduler, tx: &mut S::Tx) -> Vec<Answer> {
    let by = Shift::Later(HOUR);
    let receipts = [
        scheduler
            .reschedule_in(service.join(tx), (KIND, "moved"), 3 * HOUR)
            .await,
        scheduler.shift_in(service.join(tx), (KIND, "shifted"), by).await,
        scheduler.cancel_in(service.join(tx), (KIND, "cancelled")).await,
        scheduler.run_now_in(service.join(tx), (KIND, "run")).await,
        scheduler
            .edit_in(service.join(tx), (KIND, "edited"), Edit::payload("new"))
            .await,
        scheduler
            .edit_in(
                service.join(tx),
                (KIND, "edited later"),
                Edit::payload("new").after(3 * HOUR),
            )
            .await,
        scheduler.cancel_in(service.join(tx), (KIND, "missing")).await,
    ];
    let answers = receipts
        .into_iter()
        .map(|receipt| receipt.unwrap().answer().clone());
    answers.collect()
}

async fn scheduled(scheduler: &Scheduler) -> Vec<Task> {
    let keys = ["moved", "shifted", "cancelled", "run", "edited", "edited later"];
    let tasks = keys.map(|key| task(key).after(HOUR));
    let answers = scheduler.schedule_all(tasks).await.unwrap();
    answers.iter().map(|answer| answer.task().clone()).collect()
}

pub(crate) async fn a_verb_of_a_transaction_that_is_rolled_back_changes_nothing<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let before = scheduled(&scheduler).await;
    let mut tx = service.begin().await.unwrap();
    let answers = every_verb(&service, &scheduler, &mut tx).await;
    assert!(answers[..6].iter().all(Answer::is_done), "{answers:?}");
    drop(tx);
    for task in before {
        assert_eq!(scheduler.find(task.id).await.unwrap(), Some(task));
    }
    assert_eq!(every(&scheduler, State::Scheduled).await.len(), 6);
}

pub(crate) async fn a_verb_of_a_transaction_that_commits_is_done<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let before = scheduled(&scheduler).await;
    let mut tx = service.begin().await.unwrap();
    let answers = every_verb(&service, &scheduler, &mut tx).await;
    service.commit(tx).await.unwrap();
    for (before, answer) in before.iter().zip(&answers) {
        let after = scheduler.find(before.id).await.unwrap();
        assert_eq!(answer, &Answer::Done(after.unwrap()));
    }
    let due_in = |place: usize| {
        answers[place]
            .task()
            .unwrap()
            .due_at
            .millis_since(before[place].due_at)
    };
    assert!(
        (2 * 3_600_000..2 * 3_600_000 + 60_000).contains(&due_in(0)),
        "{answers:?}"
    );
    assert_eq!(due_in(1), 3_600_000);
    assert_eq!(answers[2].task().unwrap().state, State::Cancelled);
    assert!((-3_600_000..-3_500_000).contains(&due_in(3)), "{answers:?}");
    assert_eq!(due_in(4), 0);
    assert!(due_in(5) >= 2 * 3_600_000, "{answers:?}");
    for answer in &answers[4..6] {
        assert_eq!(answer.task().unwrap().payload, br#""new""#);
    }
    assert_eq!(answers[6], Answer::NotFound);
}

pub(crate) async fn a_running_task_is_too_late_and_its_worker_keeps_it<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let (started, mut starts) = mpsc::unbounded_channel();
    let free = std::sync::Arc::new(tokio::sync::Notify::new());
    let handler_free = free.clone();
    let worker =
        Worker::new(&scheduler)
            .lease(Duration::from_secs(1))
            .handle(KIND, move |_: String, context| {
                let (started, free) = (started.clone(), handler_free.clone());
                async move {
                    started.send(context.id()).unwrap();
                    free.notified().await;
                    Ok(Outcome::Done)
                }
            });
    let _work = start(worker);
    let id = scheduler.schedule(task("a")).await.unwrap().task().id;
    starts.recv().await.unwrap();
    let lease_end = |task: Task| task.wake_at.unwrap();
    let before = scheduler.find(id).await.unwrap().unwrap();

    let mut tx = service.begin().await.unwrap();
    let receipt = scheduler.cancel_in(service.join(&mut tx), id).await.unwrap();
    assert!(matches!(receipt.answer(), Answer::TooLate(_)), "{receipt:?}");
    // SQLite has one lock for all rows: there the renewal waits for the transaction.
    if service.url().contains("://") {
        // While the transaction is open the lease is renewed more often than it could end.
        let mut end = lease_end(before);
        for _ in 0..4 {
            end = loop {
                let row = scheduler.find(id).await.unwrap().unwrap();
                assert_eq!((row.state, row.attempt), (State::Running, 1));
                if lease_end(row.clone()) > end {
                    break lease_end(row);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
        }
    }
    service.commit(tx).await.unwrap();
    free.notify_one();
    while scheduler.find(id).await.unwrap().unwrap().state != State::Done {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stats = scheduler.stats();
    assert_eq!((stats.started, stats.lost_claims), (1, 0));
}

pub(crate) async fn a_bad_task_is_refused_and_the_transaction_goes_on<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let mut tx = service.begin().await.unwrap();
    let refused = scheduler
        .schedule_in(service.join(&mut tx), NewTask::new("", ""))
        .await;
    assert!(
        matches!(refused, Err(Error::Invalid { field: "kind", .. })),
        "{refused:?}"
    );
    let first = scheduler
        .schedule_in(service.join(&mut tx), task("a"))
        .await
        .unwrap();
    // The key is taken, in the same transaction.
    let second = scheduler
        .schedule_in(service.join(&mut tx), task("a"))
        .await
        .unwrap();
    assert!(matches!(second.answer(), Scheduled::Existing(_)), "{second:?}");
    service.effect(&mut tx, "post").await.unwrap();
    service.commit(tx).await.unwrap();
    assert_eq!(second.answer().task(), first.answer().task());
    assert_eq!(every(&scheduler, State::Scheduled).await.len(), 1);
    assert_eq!(service.effects().await, ["post"]);
}
