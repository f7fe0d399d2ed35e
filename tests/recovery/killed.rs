//! Tests that a process is killed at the worst moments, and another takes over.

use std::future::pending;
use std::time::Duration;

use delayline::{NewTask, Outcome, Scheduler, State, Task, TaskId, Worker};

use crate::child::{Process, say};
use crate::service::Service;

const KIND: &str = "post.publish";
const BEFORE_THE_WAKE_UP: &str = "before the wake-up";
const BEFORE_THE_COMMIT: &str = "before the commit";
const AFTER_THE_COMMIT: &str = "after the commit";

pub(crate) fn scheduler(service: &impl Service) -> Scheduler {
    Scheduler::builder(service.store()).build().unwrap()
}

/// A worker whose handler publishes in a transaction, and dies at the given point.
fn publisher<S: Service>(service: &S, scheduler: &Scheduler, dies: &'static str) -> Worker {
    let service = service.clone();
    Worker::new(scheduler)
        .lease(Duration::from_secs(1))
        .handle(KIND, move |post: String, context| {
            let service = service.clone();
            async move {
                let mut tx = service.begin().await?;
                service.effect(&mut tx, &post).await?;
                context.finish_in(service.join(&mut tx)).await?;
                if dies == BEFORE_THE_COMMIT {
                    wait_for_death(context.id()).await;
                }
                service.commit(tx).await?;
                if dies == AFTER_THE_COMMIT {
                    wait_for_death(context.id()).await;
                }
                Ok(Outcome::Done)
            }
        })
}

async fn wait_for_death(id: TaskId) {
    say(&id.to_string());
    pending().await
}

/// In the child: gets to a point, prints the task, and waits to be killed.
pub(crate) async fn die_at<S: Service>(point: &str, service: S) {
    let scheduler = scheduler(&service);
    let task = || NewTask::new(KIND, "post 1").key("1");
    if point == BEFORE_THE_WAKE_UP {
        let mut tx = service.begin().await.unwrap();
        let receipt = scheduler
            .schedule_in(service.join(&mut tx), task())
            .await
            .unwrap();
        service.commit(tx).await.unwrap();
        wait_for_death(receipt.answer().task().id).await;
    }
    let points = [BEFORE_THE_COMMIT, AFTER_THE_COMMIT];
    let point = points.into_iter().find(|known| *known == point).unwrap();
    scheduler.schedule(task()).await.unwrap();
    publisher(&service, &scheduler, point).run().await.unwrap();
}

/// Kills a process at a point; another one takes over. Returns the row at the death, and in the end.
async fn killed_at<S: Service>(name: &str, service: &S, point: &str) -> (Task, Task) {
    let mut child = Process::start(name, service.url(), point);
    let id: TaskId = child
        .says()
        .expect("the child gets to the point")
        .parse()
        .unwrap();
    child.kill();
    let scheduler = scheduler(service);
    let then = scheduler.find(id).await.unwrap().unwrap();

    // Another task, which comes after, shows that there was time for this one.
    let after = NewTask::new(KIND, "post 2").after(Duration::from_secs(3));
    let after = scheduler.schedule(after).await.unwrap().task().id;
    let worker = publisher(service, &scheduler, "");
    let done = async {
        while scheduler.find(after).await.unwrap().unwrap().state != State::Done {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    worker.run_until(done).await.unwrap();
    assert_eq!(service.effects().await, ["post 1", "post 2"], "killed {point}");
    let end = scheduler.find(id).await.unwrap().unwrap();
    assert_eq!(end.state, State::Done);
    (then, end)
}

pub(crate) async fn a_process_killed_between_the_commit_and_the_wake_up_loses_nothing<S: Service>(
    name: &str,
    service: S,
) {
    let (then, end) = killed_at(name, &service, BEFORE_THE_WAKE_UP).await;
    assert_eq!((then.state, then.attempt, end.attempt), (State::Scheduled, 0, 1));
}

pub(crate) async fn a_process_killed_between_the_effect_and_the_commit_has_had_no_effect<S: Service>(
    name: &str,
    service: S,
) {
    let (then, end) = killed_at(name, &service, BEFORE_THE_COMMIT).await;
    assert_eq!((then.state, then.attempt), (State::Running, 1));
    // The start was an attempt if it was recorded, which only a renewal does, after a third of the lease.
    assert_eq!((end.attempt, end.stalls), (1 + u32::from(then.started), 1));
}

pub(crate) async fn a_process_killed_after_the_commit_has_had_its_effect_once<S: Service>(
    name: &str,
    service: S,
) {
    let (then, end) = killed_at(name, &service, AFTER_THE_COMMIT).await;
    assert_eq!((then.state, then.attempt), (State::Done, 1));
    assert_eq!(then, end);
}
