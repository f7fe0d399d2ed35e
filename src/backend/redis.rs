//! Carries wake-ups in a Redis ZSET.

mod consumer;
mod endpoint;
mod hints;
mod inbox;
mod keys;
mod link;
mod script;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;

use self::consumer::Consumer;
use self::endpoint::Endpoint;
use self::inbox::Inbox;
use self::keys::Keys;
use self::link::Link;
use self::script::{Call, SEND};
use super::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::{Error, Wake, defaults};

const NAME: &str = "redis";
const PREFIX: &str = "delayline";
/// The longest delay: 100 years. A double, which a score is, has room for every ms of it.
const MAX_DELAY: Duration = Duration::from_secs(100 * 366 * 86_400);
/// The shortest lease: one that ends before its wake-ups have arrived is of no use.
const MIN_LEASE: Duration = Duration::from_millis(10);
/// The longest lease.
const MAX_LEASE: Duration = Duration::from_secs(86_400);
/// How many acknowledgements go into one command: a bound on how long it keeps the server from others.
const ACKNOWLEDGE: usize = 5_000;

/// Carries wake-ups in Redis (6 or later; 5 with less precision), to about a millisecond.
///
/// The member of a ZSET is the encoded wake-up, id and version, so an old one never stands for a newer; the score is
/// when it is due by the server's clock. A wake-up that is received is kept aside on a lease, and is due again if it
/// is not acknowledged before the lease ends. A receiver sleeps until the next one is due; it is told over a channel
/// if an earlier one comes.
///
/// Redis may be down, come back empty, or be wiped: sending fails meanwhile, receiving waits.
/// All keys are in one slot, so a node of a Redis Cluster takes them; name the one that has that slot, since
/// redirections to another node are an error.
pub struct RedisBackend {
    keys: Arc<Keys>,
    lease: Duration,
    link: Link,
    inbox: Arc<Inbox>,
    foreign: Arc<AtomicU64>,
    /// The consumer, once something was received.
    consumer: Mutex<JoinSet<()>>,
}

impl RedisBackend {
    /// The server of a URL, `redis://[user][:password@]host[:port][/database]`.
    ///
    /// Connects when it is first needed, so that a server that is down keeps nobody from starting; ask for
    /// [`health`](Backend::health) to know at once.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let endpoint = Endpoint::parse(url)?;
        Ok(Self {
            keys: Arc::new(Keys::new(PREFIX, endpoint.database())?),
            lease: defaults::LEASE,
            link: Link::new(endpoint),
            inbox: Arc::default(),
            foreign: Arc::default(),
            consumer: Mutex::default(),
        })
    }

    /// Keeps everything under `{prefix}:…`; default `delayline`. Who shares a server shares wake-ups under one prefix.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        self.keys = Arc::new(Keys::new(prefix, self.link.endpoint().database())?);
        Ok(self)
    }

    /// For how long a received wake-up may stay unacknowledged before it comes again; default 30 s.
    pub fn lease(mut self, lease: Duration) -> Result<Self, Error> {
        if !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
            let value = format!("{lease:?}");
            return Err(Error::invalid("redis lease", value, "allowed are 10 ms to 1 day"));
        }
        self.lease = lease;
        Ok(self)
    }

    /// Starts the consumer unless it was started.
    fn start(&self) {
        let mut consumer = self.consumer();
        if !consumer.is_empty() || self.inbox.is_closed() {
            return;
        }
        let started = Consumer {
            endpoint: self.link.endpoint().clone(),
            keys: self.keys.clone(),
            lease: self.lease,
            inbox: self.inbox.clone(),
            foreign: self.foreign.clone(),
        };
        consumer.spawn(started.run());
    }

    async fn zrem(&self, key: &str, wakes: &[&Wake]) -> Result<(), Error> {
        let mut command = redis::cmd("ZREM");
        command.arg(key);
        for wake in wakes {
            command.arg(wake.encode());
        }
        let _removed: u64 = self
            .link
            .call(defaults::SEND_TIMEOUT, &Call::command(command))
            .await?;
        Ok(())
    }

    fn consumer(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Any { max: MAX_DELAY },
            usual_lateness: defaults::PRECISE_LATENESS,
        }
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        for (at, part) in batch.chunks(defaults::BATCH).enumerate() {
            let mut call = Call::script(&SEND, &[&self.keys.due]);
            call.arg(&self.keys.earlier);
            for Departure { wake, delay } in part {
                call.arg(whole_millis(*delay)).arg(wake.encode());
            }
            if let Err(cause) = self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await {
                // The parts behind it are not tried: a caller waits for one time-out at the most.
                return Err(SendError {
                    failed: (at * defaults::BATCH..batch.len()).collect(),
                    cause,
                });
            }
        }
        Ok(())
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        for part in wakes.chunks(defaults::BATCH) {
            let part: Vec<_> = part.iter().collect();
            tokio::try_join!(
                self.zrem(&self.keys.due, &part),
                self.zrem(&self.keys.leased, &part)
            )?;
        }
        Ok(())
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.start();
        let wakes = self.inbox.receive(max.max(1)).await?;
        // A wake-up is acknowledged by what it is: it needs no ticket.
        Ok(wakes
            .into_iter()
            .map(|wake| Arrival { wake, ticket: 0 })
            .collect())
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        let wakes: Vec<_> = arrivals.iter().map(|arrival| &arrival.wake).collect();
        for part in wakes.chunks(ACKNOWLEDGE) {
            if let Err(error) = self.zrem(&self.keys.leased, part).await {
                tracing::debug!(%error, count = wakes.len(), "not acknowledged; they come again");
                return;
            }
        }
    }

    fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    async fn health(&self) -> Result<(), Error> {
        let ping = Call::command(redis::cmd("PING"));
        self.link.call(defaults::SEND_TIMEOUT, &ping).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.link.close();
        let mut consumer = {
            let mut consumer = self.consumer();
            // Under the lock, so that no receiver starts another one.
            self.inbox.close();
            std::mem::take(&mut *consumer)
        };
        consumer.shutdown().await;
        Ok(())
    }
}

/// The delay in whole ms, rounded up, so that it is not early.
fn whole_millis(delay: Duration) -> u64 {
    let nanos = delay.min(MAX_DELAY).as_nanos();
    u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The error of every call after the end.
fn closed() -> Error {
    Error::Backend {
        backend: NAME,
        transient: false,
        source: "closed".into(),
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("server", self.link.endpoint())
            .field("due", &self.keys.due)
            .field("lease", &self.lease)
            .finish()
    }
}
