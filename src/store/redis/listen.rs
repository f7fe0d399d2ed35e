//! Hears of rows that other processes have written.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::answer::{Soon, span};
use super::quiet::Quiet;
use super::shards::Shard;
use crate::clock::{Clock, Spawned};
use crate::defaults;
use crate::redis::{Address, Ear, Role, listen};

/// How long a shard is left alone at the most, though it said that it has nothing; more where there are many.
const QUIET: Duration = Duration::from_secs(10);
/// How many shards may be asked in that time.
const SHARDS: u16 = 4;
/// How far ahead shards and their messages look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    /// How long a shard is left alone at the most.
    pub(super) quiet: Duration,
}

impl Horizon {
    pub(super) fn of(shards: u16) -> Self {
        let quiet = QUIET * u32::from(shards.div_ceil(SHARDS).max(1));
        Self { quiet }
    }

    /// What is due within so many ms is told: before, nobody looks who was not told.
    pub(super) fn told_within_millis(self) -> u64 {
        let within = self.quiet + defaults::LOOK_AHEAD;
        u64::try_from(within.as_millis()).unwrap_or(u64::MAX)
    }
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
    quiet: Arc<Quiet>,
    /// Whether nothing that is said now is missed.
    is_connected: AtomicBool,
    soon: Notify,
}

impl Listener {
    pub(super) fn new(
        address: Address,
        channel: String,
        sender: u64,
        quiet: Arc<Quiet>,
        clock: Clock,
    ) -> Self {
        Self {
            address,
            channel,
            clock,
            heard: Arc::new(Heard {
                sender,
                quiet,
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
        self.quiet.forget_all();
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
        self.quiet.written(message.shard, message.soon);
        let Soon { wake, due, .. } = message.soon;
        let first = [wake, due].into_iter().flatten().min();
        if first.is_some_and(|first| first <= defaults::LOOK_AHEAD) {
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

/// A message of a script: who tells, of which shard, and in how long what was written needs a look.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    sender: u64,
    shard: Shard,
    soon: Soon,
}

impl Message {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let sender = words.next()?.parse().ok()?;
        let shard = words.next()?.parse().ok()?;
        let mut millis = || Some(span(words.next()?.parse().ok()?));
        let (wake, due) = (millis()?, millis()?);
        let is_all = words.next().is_none();
        is_all.then_some(Self {
            sender,
            shard,
            soon: Soon {
                wake,
                due,
                purge: None,
            },
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
            quiet: Arc::default(),
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
            ("8 0 3600000 0", true),
            ("8 0 0 3600000", true),
            ("8 0 2001 2001", false),
            ("8 0 3600000 -1", false),
            // Its own.
            ("7 0 0 0", false),
            ("8 0 0", false),
            ("", false),
        ] {
            assert_eq!(is_told(text), expected, "{text}");
        }
    }

    #[test]
    fn a_message_is_read_and_anything_else_is_not() {
        let message = Message::read("7 3 250 -1").expect("a message");
        assert_eq!((message.sender, message.shard), (7, 3));
        assert_eq!(message.soon.wake, Some(Duration::from_millis(250)));
        assert_eq!(message.soon.due, None);
        for text in [
            "",
            "soon",
            "7 3 250",
            "7 3 250 1 1",
            "7 99999999 1 1",
            "-1 1 1 1",
            "7 3 x 1",
        ] {
            assert_eq!(Message::read(text), None, "{text}");
        }
    }
}
