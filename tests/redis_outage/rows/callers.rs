//! Callers that repeat failed calls.

use std::sync::Arc;
use std::time::Duration;

use delayline::{Answer, Error, NewTask, Scheduled, State, Task, TaskId, Timestamp};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::shop::{Shop, Told};
use crate::pace::{Pace, tasks};
use crate::shop::KIND;
use crate::{SAFETY, now};

/// How many keys there are, one of which each call uses.
pub(super) const KEYS: usize = 300;

pub(super) fn key(number: usize) -> String {
    format!("order-{number}")
}

/// Schedules tasks for 0.2 to 3 s; of each call one is moved, one cancelled, and one has a key that an earlier
/// one may have.
pub(super) struct Callers {
    stop: oneshot::Sender<()>,
    calling: JoinHandle<()>,
}

impl Callers {
    pub(super) fn start(shop: &Arc<Shop>) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let shop = shop.clone();
        let calling = tokio::spawn(async move {
            let mut calls = JoinSet::new();
            let mut pace = Pace::new();
            for number in 0.. {
                if stopped.try_recv() != Err(oneshot::error::TryRecvError::Empty) {
                    break;
                }
                let Some(room) = pace.next(|| shop.is_behind()).await else {
                    continue;
                };
                let shop = shop.clone();
                calls.spawn(async move {
                    let _room = room;
                    call(&shop, key(number % KEYS)).await.unwrap();
                });
            }
            calls.join_all().await;
        });
        Self { stop, calling }
    }

    /// Ends the calls, each of which is answered at last.
    pub(super) async fn end(self) {
        self.stop.send(()).unwrap();
        timeout(SAFETY, self.calling)
            .await
            .expect("verbs that are answered")
            .unwrap();
    }
}

async fn call(shop: &Shop, key: String) -> Result<(), Error> {
    let asked = Instant::now();
    let ids: Vec<_> = (0..tasks()).map(|_| shop.scheduler.new_id()).collect();
    let delays: Vec<_> = ids
        .iter()
        .map(|_| Duration::from_millis(fastrand::u64(200..3_000)))
        .collect();
    let answers = shop
        .repeat(|| {
            let tasks = ids.iter().zip(&delays).enumerate().map(|(at, (id, delay))| {
                let task = NewTask::new(KIND, &()).id(*id).after(*delay);
                if at == 2 { task.key(key.clone()) } else { task }
            });
            let tasks: Vec<_> = tasks.collect();
            async { shop.scheduler.schedule_all(tasks).await }
        })
        .await?;
    let tell = |task: &Task, is_cancelled: bool| {
        let told = Told {
            due_at: task.due_at,
            cancelled_at: is_cancelled.then(now),
            asked,
        };
        shop.tell([(task.id, told)]);
    };
    for (answer, id) in answers.iter().zip(&ids) {
        // Another caller was told which task has the key.
        if answer.task().id == *id {
            let is_known = matches!(answer, Scheduled::New(_) | Scheduled::Existing(_));
            assert!(is_known, "{answer:?}");
            tell(answer.task(), false);
        }
    }
    let later = Timestamp::from_millis(answers[0].task().due_at.as_millis() + 700);
    let answer = shop.repeat(|| shop.scheduler.reschedule(ids[0], later)).await?;
    match answer {
        Answer::Done(task) => tell(&task, false),
        answer => assert_is_over(&answer, ids[0]),
    }
    match shop.repeat(|| shop.scheduler.cancel(ids[1])).await? {
        Answer::Done(task) => tell(&task, true),
        // By a try whose answer was lost.
        Answer::Finished(task) if task.state == State::Cancelled => tell(&task, true),
        answer => assert_is_over(&answer, ids[1]),
    }
    Ok(())
}

/// Asserts that a verb came too late, or that its row was lost meanwhile.
fn assert_is_over(answer: &Answer, id: TaskId) {
    let is_over = matches!(
        answer,
        Answer::TooLate(_) | Answer::Finished(_) | Answer::NotFound
    );
    assert!(is_over, "{id}: {answer:?}");
}
