//! Publishes what becomes of tasks, as it happens.

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::Task;

/// Hears what becomes of tasks through one [`Scheduler`](crate::Scheduler), its workers and its
/// [`Claims`](crate::claims::Claims), from when it was made on.
///
/// It is for pages and people, and no part of any promise: what other processes do, hops, and what is done in a
/// transaction of the service's own are not published; and a slow listener misses what is more than
/// [`defaults::EVENTS`](crate::defaults::EVENTS) events old.
///
/// ```
/// use delayline::store::MemoryStore;
/// use delayline::{NewTask, Scheduler, State};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let mut events = scheduler.events();
/// scheduler.schedule(NewTask::new("mail.send", "hello").key("1")).await?;
/// let _ = scheduler.cancel(("mail.send", "1")).await?;
///
/// assert_eq!(events.next().await.map(|task| task.state), Some(State::Scheduled));
/// assert_eq!(events.next().await.map(|task| task.state), Some(State::Cancelled));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Task>,
    missed: u64,
}

impl Events {
    /// The next task that was scheduled, moved, cancelled, started or ended, as it has become by that; its payload is left
    /// out. None: the scheduler is gone.
    pub async fn next(&mut self) -> Option<Task> {
        loop {
            match self.receiver.recv().await {
                Ok(task) => return Some(task),
                Err(RecvError::Lagged(missed)) => self.missed += missed,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// How many events were missed since this was asked last.
    pub fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}

/// Publishes events. Costs nothing without a listener.
#[derive(Debug)]
pub(crate) struct Teller(Sender<Task>);

impl Teller {
    pub(crate) fn new(kept: usize) -> Self {
        Self(channel(kept).0)
    }

    pub(crate) fn listen(&self) -> Events {
        Events {
            receiver: self.0.subscribe(),
            missed: 0,
        }
    }

    /// Publishes what a task has become, if there is a listener.
    pub(crate) fn publish(&self, became: impl FnOnce() -> Task) {
        if self.is_heard() {
            let payload = Vec::new();
            // The listener may just have gone.
            let _ = self.0.send(Task { payload, ..became() });
        }
    }

    /// Whether there is a listener.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }
}
