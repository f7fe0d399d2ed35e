//! What a sleeping receiver is told from outside.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, PushInfo, PushKind};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The earliest time at which something may be due, of what was told since it was last cleared.
///
/// Cleared before a look: what was told until then is in the ZSET, so the look sees it. What is told during the look
/// may be missing from its answer, and stands.
#[derive(Debug, Default)]
pub(super) struct Hints {
    earliest: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Hints {
    /// Takes note of what the server pushed: bytes from anybody who may publish on the channel.
    pub(super) fn told(&self, push: &PushInfo) {
        let delay = match push.kind {
            PushKind::Message => push
                .data
                .get(1)
                .and_then(|payload| u64::from_redis_value_ref(payload).ok())
                .map(Duration::from_millis),
            // The sooner the connection is made anew, the less is missed.
            PushKind::Disconnection => Some(Duration::ZERO),
            _ => None,
        };
        let Some(at) = delay.and_then(|delay| Instant::now().checked_add(delay)) else {
            return;
        };
        let mut earliest = self.earliest();
        if earliest.is_none_or(|earliest| at < earliest) {
            *earliest = Some(at);
            self.changed.notify_one();
        }
    }

    pub(super) fn clear(&self) {
        *self.earliest() = None;
    }

    /// Sleeps until `until`, or until an earlier time that was or is told.
    pub(super) async fn sleep_until(&self, until: Instant) {
        loop {
            let until = self.earliest().map_or(until, |earliest| earliest.min(until));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => return,
                () = self.changed.notified() => {}
            }
        }
    }

    fn earliest(&self) -> MutexGuard<'_, Option<Instant>> {
        self.earliest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
