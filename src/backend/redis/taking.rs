//! Polls one shard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::FromRedisValue;
use tokio::time::Instant;

use super::keys::Keys;
use super::kinds::Kinds;
use super::member;
use super::sender::Sender;
use super::shards::Shard;
use crate::backend::{Arrival, Wake};
use crate::redis::{Call, Lua, lua};
use crate::{Error, defaults};

/// How long a poll may take, connecting included. Longer than a send: an abandoned poll may have taken wake-ups, which
/// then come only when their lease ends.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// How often the log warns of foreign members.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How many foreign members are kept in each shard, for operators to inspect.
const FOREIGN_KEPT: usize = 1_000;

static TAKE: Lua = lua!("take.lua");
static SET_ASIDE: Lua = lua!("set_aside.lua");

/// Takes due wake-ups of a shard, on a lease.
pub(super) struct Taking {
    pub(super) sender: Arc<Sender>,
    pub(super) lease: Duration,
    pub(super) kinds: Kinds,
    pub(super) foreign: Arc<AtomicU64>,
    /// When the log last warned of foreign members.
    pub(super) warned: Mutex<Option<Instant>>,
}

/// The answer of a poll.
pub(super) struct Polled {
    /// How long polling again would find nothing.
    pub(super) wait: Duration,
    pub(super) arrivals: Vec<Arrival>,
}

impl Taking {
    /// Takes up to `max` due wake-ups of a shard; notifies the other processes if there are more, unless there are
    /// none.
    pub(super) async fn take(&self, shard: Shard, max: usize, is_alone: bool) -> Result<Polled, Error> {
        let keys = self.sender.names.shard(shard);
        let mut call = Call::script(&TAKE, &[&keys.due, &keys.leased]);
        call.arg(max)
            .arg(u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX))
            .arg(if is_alone { "" } else { &self.sender.names.hints })
            .arg(shard.0);
        let Answer {
            wait,
            lease_end,
            members,
        } = self.sender.link.call(LOOK_LIMIT, &call).await?;

        let decoded: Vec<_> = members.iter().map(|member| member::decode(member)).collect();
        let numbers = decoded.iter().flatten().map(|(_, kind, _)| *kind).collect();
        let kinds = self.kinds.names(numbers, &keys, &self.sender.link).await?;
        let mut arrivals = Vec::with_capacity(members.len());
        let mut foreign = Vec::new();
        for (member, decoded) in members.into_iter().zip(decoded) {
            let wake = decoded.and_then(|(id, number, version)| {
                let kind = kinds.get(&number)?.clone();
                Some(Wake { id, kind, version })
            });
            match wake {
                Some(wake) => arrivals.push(Arrival {
                    wake,
                    // No other claim of the same wake-up has this one.
                    ticket: lease_end,
                }),
                None => foreign.push(member),
            }
        }
        if !foreign.is_empty() {
            self.set_aside(&keys, &foreign).await;
        }
        Ok(Polled { wait, arrivals })
    }

    /// Moves away members that are no wake-ups. They are leased now: if this fails, they come again and go then.
    async fn set_aside(&self, keys: &Keys, foreign: &[Vec<u8>]) {
        let mut call = Call::script(&SET_ASIDE, &[&keys.leased, &keys.foreign]);
        call.arg(FOREIGN_KEPT).arg(foreign);
        let moved = self.sender.link.call::<u64>(defaults::SEND_TIMEOUT, &call).await;
        let count = foreign.len() as u64;
        let total = self.foreign.fetch_add(count, Ordering::Relaxed) + count;
        let is_first = {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
            if is_first {
                *warned = Some(Instant::now());
            }
            is_first
        };
        if is_first {
            let moved = moved.is_ok();
            tracing::warn!(
                total, moved, to = %keys.foreign,
                "members that are no wake-ups were moved to another key; another program may use the same prefix"
            );
        }
    }
}

/// What the script returns.
struct Answer {
    wait: Duration,
    lease_end: u64,
    members: Vec<Vec<u8>>,
}

impl FromRedisValue for Answer {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        let redis::Value::Array(values) = value else {
            return Err("expected an array from the script".into());
        };
        let mut values = values.into_iter();
        let mut number = |what: &'static str| u64::from_redis_value(values.next().ok_or(what)?);
        Ok(Self {
            wait: Duration::from_micros(number("expected a wait from the script")?),
            lease_end: number("expected the end of the lease from the script")?,
            members: values
                .map(Vec::<u8>::from_redis_value)
                .collect::<Result<_, _>>()?,
        })
    }
}
