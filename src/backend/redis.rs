//! Carries wake-ups in Redis ZSETs.

mod builder;
mod checkup;
mod consumer;
mod grouped;
mod hints;
mod in_flight;
mod inbox;
mod keys;
mod kinds;
mod member;
mod membership;
mod merging;
mod sender;
mod shards;
mod taking;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::task::JoinSet;

pub use self::builder::RedisBackendBuilder;
pub use self::checkup::{RedisCheckup, ShardCheckup};
use self::consumer::Consumer;
use self::grouped::grouped;
use self::inbox::Inbox;
use self::keys::Names;
use self::kinds::Kinds;
use self::member::Member;
use self::membership::Membership;
use self::merging::Merging;
use self::sender::{MAX_DELAY, Sender};
use self::shards::Shards;
use self::taking::Taking;
use super::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::backend::Wake;
use crate::redis::{Call, Link, Lua, NAME, lua};
use crate::store::coalescer::LARGE;
use crate::{Error, defaults};

const PREFIX: &str = "delayline";
/// The shortest lease: one that ends before its wake-ups have arrived is of no use.
const MIN_LEASE: Duration = Duration::from_millis(10);
/// The longest lease.
const MAX_LEASE: Duration = Duration::from_secs(86_400);

static ACKNOWLEDGE: Lua = lua!("redis/acknowledge.lua");

/// Carries wake-ups in Redis (6 or later; 5 with less precision) or Valkey, to about a millisecond.
///
/// The member of a ZSET is the id of a task and a version, so an old wake-up never stands for a newer; the score is
/// when it is due by the server's clock. A received wake-up is kept on a lease, and is due again if it is not
/// acknowledged before the lease ends; a receiver that lost its lease acknowledges nothing. A receiver sleeps until the
/// next wake-up is due, and is notified over a channel if an earlier one comes.
///
/// Wake-ups are spread over shards by the id of the task, each with keys under one hash tag: 1 shard on one server, 16
/// in a Cluster. Each shard is watched by one of the receiving processes; all of them take from it when more is due
/// than one takes. There is no leader and no lock: when a process dies, others watch its shards within a lease.
///
/// Redis may be down, come back empty, or be wiped: sending fails meanwhile, receiving waits.
pub struct RedisBackend {
    link: Arc<Link>,
    prefix: String,
    shards: Option<u16>,
    lease: Duration,
    /// Made by the first call, which is within a runtime.
    parts: OnceLock<Parts>,
    inbox: Arc<Inbox>,
    foreign: Arc<AtomicU64>,
    /// The consumer, once something was received.
    consumer: Mutex<JoinSet<()>>,
}

/// The parts that depend on the settings.
struct Parts {
    sender: Arc<Sender>,
    merging: Merging,
    membership: Membership,
    /// Whether other processes were notified that this one receives.
    is_known: Arc<AtomicBool>,
}

impl RedisBackend {
    /// Makes a backend on the servers of a URL: one, `redis://[user][:password@]host[:port][/database]`; those that
    /// sentinels name, `redis+sentinel://[user][:password@]host[:port],…/master[/database]`; a Cluster of which some
    /// nodes are named, `redis+cluster://[user][:password@]host[:port],…`.
    ///
    /// The user and the password are sent to sentinels as well, unless they refuse them.
    ///
    /// `rediss` uses TLS (feature `redis-tls`); then `?ca=FILE` names authorities to trust instead of the system's, and
    /// `&cert=FILE&key=FILE` the client's certificate for a server that asks for one, all in PEM.
    ///
    /// It connects when it is first needed, so that a service starts while a server is down; call
    /// [`health`](Backend::health) to know at once. The settings are the defaults of [`builder`](Self::builder).
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use delayline::Scheduler;
    /// use delayline::backend::RedisBackend;
    /// use delayline::store::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let scheduler = Scheduler::builder(Arc::new(MemoryStore::new()))
    ///     .precise(Arc::new(RedisBackend::new("redis://cache.example")?))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// Makes a builder for a backend with other settings, on the servers of a URL.
    pub fn builder(url: &str) -> RedisBackendBuilder {
        RedisBackendBuilder::new(url)
    }

    fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| {
            let address = self.link.address();
            let names = Names::new(&self.prefix, address.database());
            let shards = Shards::new(names.shards.clone(), self.shards, address.topology());
            let sender = Arc::new(Sender {
                link: self.link.clone(),
                names,
                shards,
                asked: Default::default(),
            });
            Parts {
                merging: Merging::start(&sender),
                sender,
                membership: Membership::new(self.lease),
                is_known: Arc::default(),
            }
        })
    }

    /// Starts the consumer unless it was started.
    fn start(&self) {
        let mut consumer = self.consumer();
        if !consumer.is_empty() || self.inbox.is_closed() {
            return;
        }
        let Parts {
            sender,
            membership,
            is_known,
            ..
        } = self.parts();
        let taking = Taking {
            sender: sender.clone(),
            lease: self.lease,
            kinds: Kinds::default(),
            foreign: self.foreign.clone(),
            warned: Mutex::default(),
        };
        let started = Consumer {
            taking: Arc::new(taking),
            inbox: self.inbox.clone(),
            membership: membership.clone(),
            is_known: is_known.clone(),
        };
        consumer.spawn(started.run());
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
        let Parts { sender, merging, .. } = self.parts();
        match batch.len() {
            0 => Ok(()),
            1..LARGE => merging.send(batch).await,
            LARGE.. => sender.send(batch).await,
        }
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        let Parts { sender, merging, .. } = self.parts();
        match wakes.len() {
            0 => Ok(()),
            1..LARGE => merging.remove(wakes).await,
            LARGE.. => sender.remove(wakes).await,
        }
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.start();
        self.inbox.receive(max.max(1)).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        let count = arrivals.len();
        let ended = async {
            let shards = self.parts().sender.shards.number(&self.link).await?;
            let parts = grouped(arrivals, shards, |arrival| arrival.wake.id);
            let ended = parts.into_iter().map(|(shard, part)| async move {
                let keys = self.parts().sender.names.shard(shard);
                let mut call = Call::script(&ACKNOWLEDGE, &[&keys.leased]);
                for Arrival { wake, ticket } in &part {
                    call.arg(*ticket).arg(Member::of(wake).as_ref());
                }
                self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await
            });
            join_all(ended).await.into_iter().collect::<Result<(), Error>>()
        };
        if let Err(error) = ended.await {
            tracing::debug!(%error, count, "not all acknowledged; the others come again");
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
        let mut consumer = {
            let mut consumer = self.consumer();
            // Under the lock, so that no receiver starts another one.
            self.inbox.close();
            std::mem::take(&mut *consumer)
        };
        consumer.shutdown().await;
        let parts = self.parts();
        if parts.is_known.swap(false, Ordering::Relaxed) {
            let call = parts
                .membership
                .heartbeat(&parts.sender.names, &parts.sender.shards, false);
            if let Err(error) = Membership::send(call, &self.link).await {
                tracing::debug!(%error, "the other processes were not notified; they notice within a lease");
            }
        }
        self.link.close();
        Ok(())
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("servers", self.link.address())
            .field("prefix", &self.prefix)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
