//! Takes wake-ups from the consumer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;

use crate::backend::Wake;
use crate::observe::metrics::LevelSamples;
use crate::rocketmq::{DeliveryQueue, Listener};

/// How often the log warns of foreign messages.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Delivers the wake-ups among messages, and counts and drops the others.
#[derive(Debug)]
pub(super) struct WakeListener {
    pub(super) delivery_queue: DeliveryQueue<Wake>,
    /// Samples of the wake-ups that were sent from here.
    pub(super) level_samples: Arc<LevelSamples>,
    foreign: AtomicU64,
    /// When the log last warned of foreign messages.
    warned: Mutex<Option<Instant>>,
}

impl WakeListener {
    pub(super) fn new(delivery_queue: DeliveryQueue<Wake>) -> Self {
        Self {
            delivery_queue,
            level_samples: Arc::default(),
            foreign: AtomicU64::new(0),
            warned: Mutex::default(),
        }
    }

    /// Counts the messages that were no wake-ups.
    pub(super) fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    fn deliver<'a>(&self, bodies: impl Iterator<Item = Option<&'a [u8]>>) {
        let mut wakes = Vec::new();
        let mut foreign = 0;
        for body in bodies {
            match body.and_then(Wake::decode) {
                Some(wake) => {
                    self.level_samples.arrived(&wake);
                    wakes.push(wake);
                }
                None => foreign += 1,
            }
        }
        if foreign > 0 {
            self.count_foreign(foreign);
        }
        self.delivery_queue.deliver(wakes);
    }

    fn count_foreign(&self, count: u64) {
        let total = self.foreign.fetch_add(count, Ordering::Relaxed) + count;
        {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
                return;
            }
            *warned = Some(Instant::now());
        }
        tracing::warn!(
            total,
            "dropped messages of the topic that are no wake-ups; no task is affected: see that nothing else publishes to \
             the topic"
        );
    }
}

impl Listener for WakeListener {
    /// Always acknowledges. "Later" would be 10 s later, on a topic of its own, 16 times, and then never; the sweep is
    /// faster and does not end.
    fn listen(&self, messages: &[&MessageExt]) -> bool {
        let bodies = messages
            .iter()
            .map(|message| message.get_body().map(|body| &body[..]));
        self.deliver(bodies);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;

    fn listener() -> Arc<WakeListener> {
        Arc::new(WakeListener::new(DeliveryQueue::new(Duration::from_secs(600))))
    }

    fn encoded() -> Vec<u8> {
        let wake = Wake {
            id: TaskId::from_bytes([1; 16]),
            kind: "k".into(),
            version: 1,
        };
        wake.encode()
    }

    #[tokio::test]
    async fn foreign_messages_are_counted_and_hold_up_no_delivery() {
        let listener = listener();
        let garbled = &encoded()[1..];
        listener.deliver([Some(&b"hello"[..]), None, Some(&[]), Some(garbled)].into_iter());
        assert_eq!(listener.foreign(), 4);
    }

    #[tokio::test]
    async fn a_wake_among_foreign_messages_is_delivered() {
        let listener = listener();
        let held = listener.clone();
        let held = std::thread::spawn(move || {
            let bodies = [b"hello".to_vec(), encoded()];
            held.deliver(bodies.iter().map(|body| Some(body.as_slice())));
        });
        let taken = listener.delivery_queue.take(10).await.unwrap();
        assert_eq!(taken.len(), 1);
        listener
            .delivery_queue
            .acknowledge(taken.iter().map(|delivered| delivered.ticket));
        tokio::task::spawn_blocking(|| held.join())
            .await
            .unwrap()
            .unwrap();
    }
}
