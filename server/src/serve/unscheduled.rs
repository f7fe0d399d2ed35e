//! Messages to the gateway that were not scheduled, for the pages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use delayline::Timestamp;

/// How many are kept: the last.
const KEPT: usize = 20;

/// Keeps the last of the messages that this server did not schedule, and how many there were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unscheduled(Arc<Mutex<Kept>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) count: u64,
    /// The latest first.
    pub(crate) last: VecDeque<Message>,
}

/// A message that will not come out.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) id: String,
    pub(crate) stored_at: Timestamp,
    pub(crate) answer: &'static str,
    pub(crate) reason: String,
}

impl Unscheduled {
    pub(crate) fn add(&self, message: Message) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.count += 1;
        kept.last.truncate(KEPT - 1);
        kept.last.push_front(message);
    }

    pub(crate) fn kept(&self) -> Kept {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
