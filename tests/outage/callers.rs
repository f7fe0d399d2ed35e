//! Callers that know of no fault.
#![allow(dead_code)] // A test and a program that measures share it, and each uses its own part of it.

use std::ops::Range;
use std::time::Duration;

use delayline::{Answer, Error, NewTask, Scheduler, Shift, State, TaskId};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::node::{KIND, Node, Shop};

/// A level of the brokers.
const LEVEL: Duration = Duration::from_secs(2);

/// Schedules at a steady rate; of ten tasks one is moved and one cancelled at once.
pub(crate) struct Callers {
    stop: oneshot::Sender<()>,
    calling: JoinHandle<Vec<Error>>,
}

impl Callers {
    /// Calls `rate` times a second in a node, for delays of some milliseconds.
    pub(crate) fn start(shop: &Shop, node: &Node, rate: u32, delays: Range<u64>) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let (shop, scheduler) = (shop.clone(), node.scheduler.clone());
        let calling = tokio::spawn(async move {
            let mut calls = JoinSet::new();
            let mut tick = interval(Duration::from_secs(1) / rate);
            // Missed ticks of a busy machine are made up for.
            tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut number = 0_u32;
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                tick.tick().await;
                let delay = match number % 5 {
                    // Exactly a level: few of the others end on one.
                    0 => LEVEL,
                    _ => Duration::from_millis(fastrand::u64(delays.clone())),
                };
                calls.spawn(call(scheduler.clone(), number % 10, delay));
                number += 1;
            }
            let mut failed = Vec::new();
            for outcome in calls.join_all().await {
                match outcome {
                    Ok(Some(id)) => shop.expect(id),
                    Ok(None) => {}
                    Err(error) => failed.push(error),
                }
            }
            failed
        });
        Self { stop, calling }
    }

    /// Ends the calls, and returns their errors.
    pub(crate) async fn stop(self) -> Vec<Error> {
        let _ = self.stop.send(());
        self.calling.await.unwrap()
    }

    /// Ends the calls, of which none has failed.
    pub(crate) async fn assert_none_failed(self) {
        let failed = self.stop().await;
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// Returns the task if it must run.
async fn call(scheduler: Scheduler, number: u32, delay: Duration) -> Result<Option<TaskId>, Error> {
    let id = scheduler.new_id();
    answered(|| scheduler.schedule(NewTask::new(KIND, &()).id(id).after(delay))).await?;
    match number {
        3 => drop(answered(|| scheduler.shift(id, Shift::Later(Duration::from_millis(700)))).await?),
        7 => match answered(|| scheduler.cancel(id)).await? {
            Answer::Done(_) => return Ok(None),
            // By a call that was not answered.
            Answer::Finished(task) if task.state == State::Cancelled => return Ok(None),
            _ => {}
        },
        _ => {}
    }
    Ok(Some(id))
}

/// What a call answers, which is repeated while the database of a busy machine does not answer in time: that has nothing to
/// do with what is done to brokers.
async fn answered<T, F>(call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match call().await {
            Err(error @ Error::Store { .. }) if error.is_transient() => {}
            answer => return answer,
        }
    }
}
