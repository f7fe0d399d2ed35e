//! Callers that know of no fault.

use std::sync::Arc;
use std::time::Duration;

use delayline::{Error, NewTask, Shift, TaskId};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::pace::{Pace, tasks};
use crate::shop::{KIND, Shop};

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
            let mut pace = Pace::new();
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                let Some(room) = pace.next(|| shop.is_behind()).await else {
                    continue;
                };
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

/// Returns the tasks that must run.
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
