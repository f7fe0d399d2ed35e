//! Handlers that finish their task in the transaction of its effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use delayline::store::{Ending, Guarded, History, Step};
use delayline::{Context, Error, Failure, NewTask, Outcome, Policy, Scheduler, State, Task, TaskId, Worker};
use tokio::sync::{Notify, mpsc};

use crate::service::Service;
use crate::verbs::{KIND, scheduler, start};

/// Waits for what a task becomes.
async fn becomes(scheduler: &Scheduler, id: TaskId, state: State) -> Task {
    loop {
        let task = scheduler.find(id).await.unwrap().unwrap();
        if task.state == state {
            return task;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn schedule(scheduler: &Scheduler) -> TaskId {
    let task = NewTask::new(KIND, "post").key("a");
    scheduler.schedule(task).await.unwrap().task().id
}

fn worker<A>(scheduler: &Scheduler, handler: impl Fn(Context) -> A + Send + Sync + 'static) -> Worker
where
    A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    let policy = Policy::new().backoff(Duration::from_millis(10), Duration::from_millis(10));
    let worker = Worker::new(scheduler).lease(Duration::from_secs(1));
    worker.handle_bytes(KIND, policy, handler)
}

pub(crate) async fn the_effect_and_done_commit_together<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let (handler_service, (seen, mut see)) = (service.clone(), mpsc::unbounded_channel());
    let _work = start(worker(&scheduler, move |context| {
        let (service, seen) = (handler_service.clone(), seen.clone());
        async move {
            let mut tx = service.begin().await?;
            service.effect(&mut tx, "published").await?;
            context.finish_in(service.join(&mut tx)).await?;
            seen.send((service.effects().await, context.id())).unwrap();
            service.commit(tx).await?;
            Ok(Outcome::Done)
        }
    }));
    let id = schedule(&scheduler).await;
    let (before_commit, _) = see.recv().await.unwrap();
    assert_eq!(before_commit, [""; 0]);
    let done = becomes(&scheduler, id, State::Done).await;
    assert_eq!((done.version, done.attempt, done.last_error), (3, 1, None));
    assert_eq!(service.effects().await, ["published"]);
    while scheduler.stats().done == 0 {
        tokio::task::yield_now().await;
    }
    let stats = scheduler.stats();
    assert_eq!(
        (stats.done, stats.started, stats.lost_claims, stats.retried),
        (1, 1, 0, 0)
    );
}

pub(crate) async fn done_is_noted_as_an_ordinary_end_is<S: Service>(service: S) {
    for (history, noted) in [(History::Changes, "scheduled"), (History::All, "done")] {
        let builder = Scheduler::builder(service.store()).history(history);
        let scheduler = builder.build().unwrap();
        let handler_service = service.clone();
        let _work = start(worker(&scheduler, move |context| {
            let service = handler_service.clone();
            async move {
                if context.key() == Some("its own") {
                    let mut tx = service.begin().await?;
                    context.finish_in(service.join(&mut tx)).await?;
                    service.commit(tx).await?;
                }
                Ok(Outcome::Done)
            }
        }));
        let told = async |key: &str| {
            let task = NewTask::new(KIND, "post").key(key);
            let id = scheduler.schedule(task).await.unwrap().task().id;
            becomes(&scheduler, id, State::Done).await;
            let told = scheduler.explain(id).await.unwrap().unwrap();
            let last = told.history.into_iter().next_back().unwrap();
            (last.event, last.version, last.actor, last.attempt, last.wake)
        };
        let finished = told("its own").await;
        assert_eq!(finished.0, noted);
        assert_eq!(finished, told("ordinary").await);
    }
}

pub(crate) async fn what_was_finished_and_not_committed_is_tried_again<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let handler_service = service.clone();
    let _work = start(worker(&scheduler, move |context| {
        let service = handler_service.clone();
        async move {
            let mut tx = service.begin().await?;
            service.effect(&mut tx, "published").await?;
            context.finish_in(service.join(&mut tx)).await?;
            match context.attempt() {
                1 => drop(tx),
                2 => return Err("no luck before the commit".into()),
                _ => service.commit(tx).await?,
            }
            Ok(Outcome::Done)
        }
    }));
    let id = schedule(&scheduler).await;
    let done = becomes(&scheduler, id, State::Done).await;
    assert_eq!(done.attempt, 3);
    assert_eq!(service.effects().await, ["published"]);
    assert_eq!(scheduler.stats().retried, 2);
}

pub(crate) async fn a_handler_that_fails_after_its_commit_is_done<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let handler_service = service.clone();
    let _work = start(worker(&scheduler, move |context| {
        let service = handler_service.clone();
        async move {
            let mut tx = service.begin().await?;
            service.effect(&mut tx, "published").await?;
            context.finish_in(service.join(&mut tx)).await?;
            service.commit(tx).await?;
            Err("the answer to the commit was lost".into())
        }
    }));
    let id = schedule(&scheduler).await;
    while scheduler.stats().done == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let task = becomes(&scheduler, id, State::Done).await;
    assert_eq!((task.version, task.attempt), (3, 1));
    let stats = scheduler.stats();
    assert_eq!((stats.retried, stats.lost_claims), (0, 0));
    assert_eq!(service.effects().await, ["published"]);
}

pub(crate) async fn a_worker_that_has_lost_the_claim_cannot_finish<S: Service>(service: S) {
    let scheduler = scheduler(&service);
    let (handler_service, attempts) = (service.clone(), Arc::new(AtomicUsize::new(0)));
    let (counted, was_refused) = (attempts.clone(), Arc::new(AtomicBool::new(false)));
    let (refused, mut refusals) = mpsc::unbounded_channel();
    let _work = start(worker(&scheduler, move |context| {
        let service = handler_service.clone();
        counted.fetch_add(1, Ordering::Relaxed);
        let (refused, was_refused) = (refused.clone(), was_refused.clone());
        async move {
            // Until then, as a worker that is slow enough may have heard of the loss first, and have stopped its handler.
            if !was_refused.load(Ordering::Relaxed) {
                // As if the lease had ended and another had taken the task: the worker has not heard of it yet.
                let lost = Step::end(
                    context.id(),
                    context.task().version,
                    Ending::Retry {
                        after: Duration::from_millis(1_500),
                        overdue_after: Duration::from_millis(1_500),
                        error: "taken away".to_owned(),
                    },
                );
                // Another statement of the worker's may hold the row for a moment, as it looked while it was claimed.
                let mut came = vec![Guarded::Blocked];
                while came == [Guarded::Blocked] {
                    came = service.store().advance(std::slice::from_ref(&lost)).await?;
                }
                assert_eq!(came, [Guarded::Done]);
            }
            let mut tx = service.begin().await?;
            service.effect(&mut tx, "published").await?;
            if let Err(error) = context.finish_in(service.join(&mut tx)).await {
                drop(tx);
                was_refused.store(true, Ordering::Relaxed);
                refused.send(error).unwrap();
                return Err("rolled back".into());
            }
            service.commit(tx).await?;
            Ok(Outcome::Done)
        }
    }));
    let id = schedule(&scheduler).await;
    let refusal = refusals.recv().await.unwrap();
    assert!(
        matches!(refusal, Error::ClaimLost { id: of } if of == id),
        "{refusal}"
    );
    assert!(!refusal.is_transient());
    let done = becomes(&scheduler, id, State::Done).await;
    assert_eq!(service.effects().await, ["published"]);
    let attempts = attempts.load(Ordering::Relaxed);
    assert_eq!(usize::try_from(done.attempt).unwrap(), attempts);
    assert_eq!(scheduler.stats().lost_claims, attempts as u64 - 1);
}

pub(crate) async fn a_claim_is_kept_while_its_transaction_is_open<S: Service>(service: S) {
    let (first, second) = (scheduler(&service), scheduler(&service));
    let (handler_service, (begun, mut begins)) = (service.clone(), mpsc::unbounded_channel());
    let free = Arc::new(Notify::new());
    let handler_free = free.clone();
    let handler = move |context: Context| {
        let (service, begun, free) = (handler_service.clone(), begun.clone(), handler_free.clone());
        async move {
            let mut tx = service.begin().await?;
            service.effect(&mut tx, "published").await?;
            context.finish_in(service.join(&mut tx)).await?;
            begun.send(()).unwrap();
            free.notified().await;
            service.commit(tx).await?;
            Ok(Outcome::Done)
        }
    };
    let _works = [
        start(worker(&first, handler.clone())),
        start(worker(&second, handler)),
    ];
    let id = schedule(&first).await;
    begins.recv().await.unwrap();
    // Three leases long, which no worker can renew: the row is locked.
    tokio::time::sleep(Duration::from_secs(3)).await;
    free.notify_one();
    let done = becomes(&first, id, State::Done).await;
    assert_eq!((done.version, done.attempt), (3, 1));
    assert_eq!(service.effects().await, ["published"]);
    begins.try_recv().unwrap_err();
    let started = first.stats().started + second.stats().started;
    assert_eq!(started, 1);
}
