//! Hears of rows that other processes have written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::idle::Idle;
use super::shards::Shard;
use crate::clock::Clock;
use crate::clock::background::Background;
use crate::defaults;
use crate::redis::{Address, MessageListener, Role, listen};
use crate::task::timestamp::duration;

/// How long a shard is left alone at the most, though it said that it has nothing; more where there are many.
const QUIET: Duration = Duration::from_secs(10);
/// How many shards may be asked in that time.
const SHARDS: u16 = 4;
/// The same of any number of shards: so late are tasks of whose messages none comes.
const LONGEST: Duration = Duration::from_secs(30);

/// For how long it is believed of a shard that it has nothing due.
pub(super) fn believed(shards: u16) -> Duration {
    let quiet = QUIET * u32::from(shards.div_ceil(SHARDS).max(1));
    quiet.min(LONGEST)
}

/// What is due within so long is published: before, a process that has heard of nothing does not ask.
pub(super) fn published_within(shards: u16) -> Duration {
    believed(shards) + defaults::LOOK_AHEAD
}

/// Listens on the store's channel for every waiter of this process, from the first one on.
pub(super) struct Listener {
    address: Address,
    channel: String,
    clock: Clock,
    state: Arc<ListenerState>,
    /// Ends with the listener, or with its runtime.
    listening: Background,
}

/// What the listening task and the waiters share.
struct ListenerState {
    /// By what this process knows its own messages.
    sender: u64,
    idle: Arc<Idle>,
    /// Whether nothing that is said now is missed.
    is_connected: AtomicBool,
    soon: Notify,
}

impl Listener {
    pub(super) fn new(address: Address, channel: String, idle: Arc<Idle>, clock: Clock) -> Self {
        let state = ListenerState {
            sender: clock.unique_number(),
            idle,
            is_connected: AtomicBool::new(false),
            soon: Notify::new(),
        };
        Self {
            address,
            channel,
            clock,
            state: Arc::new(state),
            listening: Background::default(),
        }
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// What a message of this process about a shard begins with.
    pub(super) fn sender(&self, shard: Shard) -> String {
        format!("{} {shard}", self.state.sender)
    }

    /// Whether nothing that is said is missed; begins to listen.
    pub(super) fn is_listening(&self) -> bool {
        self.start();
        self.state.is_connected.load(Ordering::Acquire)
    }

    /// Waits for a message, or for a moment after which one may have been missed.
    pub(super) async fn notified(&self) {
        self.start();
        self.state.soon.notified().await;
    }

    fn start(&self) {
        self.listening.keep(|| {
            // What was said since the last runtime ended is missed.
            self.state.ends();
            let (address, channel) = (self.address.clone(), self.channel.clone());
            let state = Arc::clone(&self.state);
            self.clock
                .spawn(async move { listen(&address, Role::Store, &channel, state).await })
        });
    }
}

impl MessageListener for ListenerState {
    /// A message of `publish` in `index.lua`: sender, shard, and in how many ms something is due.
    fn message(&self, text: &[u8]) {
        let text = str::from_utf8(text).unwrap_or_default();
        let words: Vec<_> = text.split(' ').collect();
        let [sender, shard, millis] = words[..] else {
            return;
        };
        let (Ok(sender), Ok(shard), Ok(millis)) = (sender.parse::<u64>(), shard.parse(), millis.parse())
        else {
            return;
        };
        if sender != self.sender {
            self.idle.forget(shard);
            if duration(millis) <= defaults::LOOK_AHEAD {
                self.wake();
            }
        }
    }

    fn begins(&self) {
        self.idle.forget_all();
        self.is_connected.store(true, Ordering::Release);
        self.wake();
    }

    fn ends(&self) {
        self.is_connected.store(false, Ordering::Release);
    }
}

impl ListenerState {
    /// Ends the wait of every waiter, and the next one too: a worker that sweeps at this moment may have asked before the row
    /// was there.
    fn wake(&self) {
        self.soon.notify_waiters();
        self.soon.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_lost_costs_half_a_minute_at_the_most() {
        let seconds = [1, 4, 8, 16, 64, 1_024].map(|shards| believed(shards).as_secs());
        assert_eq!(seconds, [10, 10, 20, 30, 30, 30]);
    }

    /// Whether what a server pushes ends a wait.
    fn wakes(text: &str) -> bool {
        let state = ListenerState {
            sender: 7,
            idle: Arc::new(Idle::new(Clock::system())),
            is_connected: AtomicBool::new(true),
            soon: Notify::new(),
        };
        state.message(text.as_bytes());
        let woken = state.soon.notified();
        tokio::pin!(woken);
        woken.as_mut().enable()
    }

    #[test]
    fn a_wait_ends_by_what_others_say_that_is_soon() {
        for (text, expected) in [
            ("8 0 0", true),
            ("8 0 2000", true),
            ("8 0 2001", false),
            // Its own.
            ("7 0 0", false),
            ("8 0", false),
            ("8 0 0 1", false),
            ("8 99999999 0", false),
            ("-1 0 0", false),
            ("8 0 x", false),
            ("", false),
        ] {
            assert_eq!(wakes(text), expected, "{text}");
        }
    }
}
