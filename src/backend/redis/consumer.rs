//! The task that takes wake-ups from Redis for the receivers of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};
use tokio::time::Instant;

use super::endpoint::{Endpoint, is_connection_spent};
use super::hints::Hints;
use super::inbox::Inbox;
use super::keys::Keys;
use super::script::{Call, TAKE};
use crate::{Error, Wake, defaults};

/// How long a look may take, connecting included. Longer than a send: an abandoned look may have taken wake-ups,
/// which then come only when their lease ends.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// How long a receiver sleeps at the most though it would be told of an earlier wake-up. Messages are not reliable;
/// and only by a look is a connection that leads to nowhere found out.
const LOOK_AGAIN: Duration = Duration::from_secs(8);
/// The same, where the server does not let it listen.
const LOOK_AGAIN_UNTOLD: Duration = Duration::from_millis(250);
/// The wait after a first failure; it doubles with every further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How often foreign members are warned about.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Looks for due wake-ups when receivers want some, and sleeps until the next is due.
///
/// It has a connection of its own, on which it also listens for earlier wake-ups than the one it sleeps for.
pub(super) struct Consumer {
    pub(super) endpoint: Endpoint,
    pub(super) keys: Arc<Keys>,
    pub(super) lease: Duration,
    pub(super) inbox: Arc<Inbox>,
    pub(super) foreign: Arc<AtomicU64>,
}

impl Consumer {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        let _closing = CloseOnDrop(self.inbox.clone());
        let mut looker = Looker {
            consumer: self,
            hints: Arc::default(),
            connection: None,
            is_told: false,
            next: Instant::now(),
            warned: None,
        };
        looker.run().await;
    }
}

/// Lets receivers fail rather than wait for ever, should the task end in whatever way.
struct CloseOnDrop(Arc<Inbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Looker {
    consumer: Consumer,
    hints: Arc<Hints>,
    connection: Option<MultiplexedConnection>,
    /// Whether that connection brings messages.
    is_told: bool,
    /// When to look next, unless told otherwise.
    next: Instant,
    /// When foreign members were last warned about.
    warned: Option<Instant>,
}

impl Looker {
    async fn run(&mut self) {
        let inbox = self.consumer.inbox.clone();
        let mut failures = 0;
        loop {
            inbox.wanted().await;
            self.hints.sleep_until(self.next).await;
            // Whoever wanted some may have left meanwhile.
            let Some(wanted) = inbox.wanted_now() else {
                continue;
            };
            let leased_from = Instant::now();
            match self.look(wanted.min(defaults::BATCH)).await {
                Ok(wakes) => {
                    failures = 0;
                    if !wakes.is_empty() {
                        inbox.put(wakes, leased_from + self.consumer.lease);
                    }
                }
                Err(error) => {
                    if !error.is_transient() {
                        inbox.fail(error);
                    } else if failures == 0 {
                        tracing::warn!(%error, "receiving is interrupted; trying again");
                    }
                    tokio::time::sleep(backoff(failures)).await;
                    failures += 1;
                }
            }
        }
    }

    /// Takes up to `max` wake-ups that are due, and finds out when to look next.
    async fn look(&mut self, max: usize) -> Result<Vec<Wake>, Error> {
        self.next = Instant::now();
        match tokio::time::timeout(LOOK_LIMIT, self.take(max)).await {
            Ok(Ok(wakes)) => Ok(wakes),
            Ok(Err(error)) => {
                if is_connection_spent(&error) {
                    self.connection = None;
                }
                Err(self.consumer.endpoint.error(error))
            }
            Err(_) => {
                self.connection = None;
                Err(Endpoint::timed_out(LOOK_LIMIT))
            }
        }
    }

    async fn take(&mut self, max: usize) -> RedisResult<Vec<Wake>> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connect().await?,
        };
        self.hints.clear();
        let Consumer { keys, lease, .. } = &self.consumer;
        let mut call = Call::script(&TAKE, &[&keys.due, &keys.leased]);
        call.arg(max)
            .arg(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        let Taken { wait, members } = call.on(&mut connection).await?;

        let longest = if self.is_told {
            // Nobody tells of leases that begin while this one sleeps.
            LOOK_AGAIN.min((*lease).max(LOOK_AGAIN_UNTOLD))
        } else {
            LOOK_AGAIN_UNTOLD
        };
        self.next = Instant::now() + wait.min(longest);

        let mut wakes = Vec::with_capacity(members.len());
        let mut foreign = Vec::new();
        for member in members {
            match Wake::decode(&member) {
                Some(wake) => wakes.push(wake),
                None => foreign.push(member),
            }
        }
        if !foreign.is_empty() {
            self.discard(&mut connection, &foreign).await;
        }
        Ok(wakes)
    }

    async fn connect(&mut self) -> RedisResult<MultiplexedConnection> {
        let Consumer { endpoint, keys, .. } = &self.consumer;
        let hints = self.hints.clone();
        let connection = match endpoint.connect_listening(move |push| hints.told(&push)).await {
            Ok(mut connection) => {
                let subscribed = connection.subscribe(&keys.earlier).await;
                self.is_told = subscribed.is_ok();
                match subscribed {
                    Err(error) if is_connection_spent(&error) => return Err(error),
                    Err(error) => {
                        let error = endpoint.error(error);
                        tracing::warn!(%error, "cannot listen for earlier wake-ups; looking for them often instead");
                    }
                    Ok(()) => {}
                }
                connection
            }
            Err(error) if error.is_io_error() => return Err(error),
            // A server older than Redis 6, or a proxy, with its own words for it; or a refusal, which is then repeated.
            Err(_) => {
                let connection = endpoint.connect().await?;
                tracing::warn!("the server does not speak RESP3; looking often for earlier wake-ups instead");
                self.is_told = false;
                connection
            }
        };
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Removes members that are no wake-ups. They are leased now: if this fails, they come again and go then.
    async fn discard(&mut self, connection: &mut MultiplexedConnection, foreign: &[Vec<u8>]) {
        let mut command = redis::cmd("ZREM");
        command.arg(&self.consumer.keys.leased).arg(foreign);
        let removed: RedisResult<u64> = command.query_async(connection).await;
        let count = foreign.len() as u64;
        let total = self.consumer.foreign.fetch_add(count, Ordering::Relaxed) + count;
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            let removed = removed.is_ok();
            tracing::warn!(total, removed, key = %self.consumer.keys.due, "dropped members that are no wake-ups");
        }
    }
}

/// What the script returns.
struct Taken {
    wait: Duration,
    members: Vec<Vec<u8>>,
}

impl FromRedisValue for Taken {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        let redis::Value::Array(values) = value else {
            return Err("expected an array from the script".into());
        };
        let mut values = values.into_iter();
        let wait = values.next().ok_or("expected a wait from the script")?;
        Ok(Self {
            wait: Duration::from_micros(u64::from_redis_value(wait)?),
            members: values
                .map(Vec::<u8>::from_redis_value)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// Half of it is chance, so that the receivers of a fleet do not all come back at the same moment.
fn backoff(failures: u32) -> Duration {
    let longest = BACKOFF_FIRST
        .saturating_mul(1 << failures.min(10))
        .min(BACKOFF_MAX);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}
