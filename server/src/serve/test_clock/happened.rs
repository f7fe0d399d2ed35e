//! What happens while a clock is turned.

use std::sync::{Mutex, MutexGuard, PoisonError};

use delayline::clock::TestClock;
use delayline::store::Ending;
use delayline::{Key, Kind, Task, TaskId, Timestamp};
use tokio::sync::Notify;

/// After so many events a clock is not turned on.
const MOST: usize = 10_000;

/// Something that has happened to a task.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    pub(crate) what: What,
    pub(crate) id: TaskId,
    pub(crate) kind: Kind,
    pub(crate) key: Option<Key>,
    /// The number of its attempt.
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The server has begun to deliver it.
    Started,
    Claimed {
        owner: Option<String>,
    },
    Webhook {
        status: u16,
    },
    Published {
        topic: String,
    },
    Done,
    Retried {
        reason: String,
        due_at: Timestamp,
    },
    Snoozed {
        reason: Option<String>,
        due_at: Timestamp,
    },
    Again {
        due_at: Timestamp,
    },
    Moved {
        due_at: Timestamp,
    },
    Released,
    Cancelled,
    Dead {
        reason: String,
    },
    LeaseEnded,
    /// It is due, and no worker has claimed it.
    Waiting,
}

impl What {
    /// How a claim ended, at this time.
    pub(super) fn of(ending: &Ending, now: Timestamp) -> Self {
        match ending.clone() {
            Ending::Done => Self::Done,
            Ending::Dead { error, .. } => Self::Dead { reason: error },
            Ending::Retry { error, after, .. } => Self::Retried {
                reason: error,
                due_at: now.after(after),
            },
            Ending::Snooze { reason, after, .. } => Self::Snoozed {
                reason,
                due_at: now.after(after),
            },
            Ending::Again { after, .. } => Self::Again {
                due_at: now.after(after),
            },
            Ending::Moved { due, .. } => Self::Moved { due_at: due },
            Ending::Release => Self::Released,
            Ending::Cancelled => Self::Cancelled,
        }
    }
}

/// Keeps what happens, while it is listened to.
#[derive(Debug)]
pub(super) struct Happened {
    clock: TestClock,
    kept: Mutex<Option<Vec<Event>>>,
    full: Notify,
}

impl Happened {
    pub(super) fn new(clock: TestClock) -> Self {
        Self {
            clock,
            kept: Mutex::default(),
            full: Notify::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// This has happened to a task, which was so before.
    pub(super) fn note(&self, task: &Task, what: What) {
        let mut kept = self.kept();
        let Some(events) = kept.as_mut() else { return };
        events.push(Event {
            at: self.now(),
            what,
            id: task.id,
            kind: task.kind.clone(),
            key: task.key.clone(),
            attempt: task.attempt,
        });
        if events.len() >= MOST {
            self.full.notify_one();
        }
    }

    /// A task was not started after all.
    pub(super) fn take_back(&self, task: &Task) {
        if let Some(events) = self.kept().as_mut() {
            let last = events.iter().rposition(|event| event.id == task.id);
            if let Some(last) = last.filter(|&last| events[last].what == What::Started) {
                events.remove(last);
            }
        }
    }

    /// Keeps what happens from now on.
    pub(super) fn hear(&self) -> Hearing<'_> {
        *self.kept() = Some(Vec::new());
        Hearing(self)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Vec<Event>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of what happens goes with this.
pub(super) struct Hearing<'h>(&'h Happened);

impl Hearing<'_> {
    /// Ends when as much has happened as is told.
    pub(super) async fn full(&self) {
        loop {
            let full = self.0.full.notified();
            if self.is_full() {
                return;
            }
            full.await;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.kept().as_ref().is_some_and(|events| events.len() >= MOST)
    }

    /// What has happened.
    pub(super) fn end(self) -> Vec<Event> {
        self.0.kept().take().unwrap_or_default()
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        self.0.kept().take();
    }
}
