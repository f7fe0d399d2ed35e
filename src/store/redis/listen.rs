//! Hears of rows that other processes have written.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::idle::{Idle, Sort};
use super::shards::Shard;
use crate::clock::{Clock, Spawned};
use crate::redis::{Address, Ear, Role, listen};
use crate::{Timestamp, defaults};

/// How long a shard is left alone at the most, though it said that it has nothing; more where there are many.
const QUIET: Duration = Duration::from_secs(10);
/// How many shards may be asked in that time.
const SHARDS: u16 = 4;

/// For how long it is believed of a shard that it needs no look.
pub(super) fn believed(shards: u16) -> Duration {
    QUIET * u32::from(shards.div_ceil(SHARDS).max(1))
}

/// What is due within so long is told: before, nobody looks who was not told.
pub(super) fn told_within(shards: u16) -> Duration {
    believed(shards) + defaults::LOOK_AHEAD
}

/// Listens on the store's channel for every waiter of this process, from the first one on.
pub(super) struct Listener {
    address: Address,
    channel: String,
    clock: Clock,
    heard: Arc<Heard>,
    /// Ends with the listener.
    listening: OnceLock<Spawned>,
}

/// What has been heard.
#[derive(Debug)]
struct Heard {
    /// By what this process knows its own messages.
    sender: u64,
    idle: Arc<Idle>,
    /// Whether nothing that is said now is missed.
    is_connected: AtomicBool,
    soon: Notify,
}

impl Listener {
    pub(super) fn new(address: Address, channel: String, sender: u64, idle: Arc<Idle>, clock: Clock) -> Self {
        Self {
            address,
            channel,
            clock,
            heard: Arc::new(Heard {
                sender,
                idle,
                is_connected: AtomicBool::new(false),
                soon: Notify::new(),
            }),
            listening: OnceLock::new(),
        }
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Whether nothing that is said is missed; begins to listen.
    pub(super) fn is_listening(&self) -> bool {
        self.start();
        self.heard.is_connected.load(Ordering::Acquire)
    }

    /// Waits for a message, or for a moment after which one may have been missed.
    pub(super) async fn notified(&self) {
        self.start();
        self.heard.soon.notified().await;
    }

    fn start(&self) {
        self.listening.get_or_init(|| {
            let (address, channel) = (self.address.clone(), self.channel.clone());
            let heard = Arc::clone(&self.heard);
            self.clock
                .spawn(async move { listen(&address, Role::Store, &channel, heard).await })
        });
    }
}

impl Ear for Heard {
    fn message(&self, text: &[u8]) {
        let text = std::str::from_utf8(text).ok();
        if let Some(message) = text.and_then(Message::read) {
            self.told(&message);
        }
    }

    fn begins(&self) {
        self.idle.forget_all();
        self.is_connected.store(true, Ordering::Release);
        self.tell();
    }

    fn ends(&self) {
        self.is_connected.store(false, Ordering::Release);
    }
}

impl Heard {
    fn told(&self, message: &Message) {
        // What this process has written itself it knows.
        if message.sender == self.sender {
            return;
        }
        let Message {
            shard,
            now,
            wake,
            due,
            ..
        } = *message;
        self.idle.written(shard, Sort::Waking, wake);
        self.idle.written(shard, Sort::Due, due);
        if wake.min(due) <= now.after(defaults::LOOK_AHEAD) {
            self.tell();
        }
    }

    /// Ends the wait of everybody who waits, and the next one too: a worker that sweeps at this moment may have looked
    /// before the row was there.
    fn tell(&self) {
        self.soon.notify_waiters();
        self.soon.notify_one();
    }
}

/// A message of a script: who tells, of which shard and when, and the first `wake_at` and due time of what was written.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    sender: u64,
    shard: Shard,
    now: Timestamp,
    wake: Timestamp,
    due: Timestamp,
}

impl Message {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let sender = words.next()?.parse().ok()?;
        let shard = words.next()?.parse().ok()?;
        let mut time = || words.next()?.parse().ok().map(Timestamp::from_millis);
        let (now, wake, due) = (time()?, time()?, time()?);
        words.next().is_none().then_some(Self {
            sender,
            shard,
            now,
            wake,
            due,
        })
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("channel", &self.channel)
            .field("is_listening", &self.listening.get().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether what a server pushes ends a wait.
    fn is_told(text: &str) -> bool {
        let heard = Heard {
            sender: 7,
            idle: Arc::default(),
            is_connected: AtomicBool::new(true),
            soon: Notify::new(),
        };
        heard.message(text.as_bytes());
        let told = heard.soon.notified();
        tokio::pin!(told);
        told.as_mut().enable()
    }

    #[test]
    fn a_wait_ends_by_what_others_say_that_is_soon() {
        for (text, expected) in [
            ("8 0 5000 3605000 5000", true),
            ("8 0 5000 5000 3605000", true),
            ("8 0 5000 7001 7001", false),
            // Its own.
            ("7 0 5000 5000 5000", false),
            ("8 0 5000 5000", false),
            ("8 0 5000 5000 5000 1", false),
            ("8 99999999 5000 5000 5000", false),
            ("-1 0 5000 5000 5000", false),
            ("8 0 5000 x 5000", false),
            ("", false),
        ] {
            assert_eq!(is_told(text), expected, "{text}");
        }
    }
}
