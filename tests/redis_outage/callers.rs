//! Callers who do not know that anything is wrong.

use std::sync::Arc;
use std::time::Duration;

use delayline::{Error, NewTask, Shift, TaskId};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::rate;
use crate::shop::{KIND, Shop};

/// How often some call.
const EVERY: Duration = Duration::from_millis(10);
/// How many calls may be without an answer. Without a limit a machine that is too slow for them falls behind for ever.
const UNANSWERED: usize = 300;
/// How many tasks they schedule each time.
fn tasks() -> usize {
    rate() / 100
}

/// Schedules tasks for 0.2 to 3 s; of each call one is moved and one cancelled at once.
pub(crate) struct Callers {
    stop: oneshot::Sender<()>,
    calling: JoinHandle<Vec<Error>>,
}

impl Callers {
    pub(crate) fn start(shop: &Arc<Shop>) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let shop = shop.clone();
        let calling = tokio::spawn(async move {
            let mut calls = JoinSet::new();
            let mut tick = interval(EVERY);
            // What a busy machine missed is made up for, as far as it keeps pace.
            tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let room = Arc::new(Semaphore::new(UNANSWERED));
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                tick.tick().await;
                if shop.is_behind() {
                    continue;
                }
                let room = room.clone().acquire_owned().await.unwrap();
                let shop = shop.clone();
                calls.spawn(async move {
                    let _room = room;
                    let must_run = call(&shop).await?;
                    shop.expect(must_run);
                    Ok(())
                });
            }
            let outcomes = calls.join_all().await;
            outcomes.into_iter().filter_map(Result::err).collect()
        });
        Self { stop, calling }
    }

    /// Ends the calls, of which none has failed.
    pub(crate) async fn assert_none_failed(self) {
        self.stop.send(()).unwrap();
        let failed = self.calling.await.unwrap();
        assert!(
            failed.is_empty(),
            "{} verbs failed, such as {:?}",
            failed.len(),
            failed[0]
        );
    }
}

/// Gives those tasks that must run.
async fn call(shop: &Shop) -> Result<Vec<TaskId>, Error> {
    let delays = (0..tasks()).map(|_| Duration::from_millis(fastrand::u64(200..3_000)));
    let tasks = delays.map(|delay| NewTask::new(KIND, &()).after(delay));
    let answers = shop.scheduler.schedule_all(tasks).await?;
    let mut ids: Vec<_> = answers.iter().map(|answer| answer.task().id).collect();
    let _ = shop
        .scheduler
        .shift(ids[0], Shift::Later(Duration::from_millis(700)))
        .await?;
    if shop.scheduler.cancel(ids[1]).await?.is_done() {
        ids.remove(1);
    }
    Ok(ids)
}
