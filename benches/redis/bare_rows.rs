//! A packed value, an index of keys and a ZSET, written in one script: the least that keeps rows.

use std::time::{Duration, Instant};

use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::side::{self, Id, Side, Taking};
use crate::{Error, connection};

/// The head of a row beside its payload: times, state, version and the like.
const HEAD: usize = 60;
const PAYLOAD: usize = 100;
const LEASE: usize = 100;

const ADD: &str = "
    local zadd, values, keys = {}, {}, {}
    for at = 1, #ARGV, 4 do
        zadd[#zadd + 1], zadd[#zadd + 2] = ARGV[at + 1], ARGV[at]
        values[#values + 1], values[#values + 2] = ARGV[at], ARGV[at + 3]
        keys[#keys + 1], keys[#keys + 2] = ARGV[at + 2], ARGV[at]
    end
    redis.call('HSET', 'bare:rows', unpack(values))
    redis.call('HSET', 'bare:keys', unpack(keys))
    redis.call('ZADD', 'bare:due', unpack(zadd))";

const CANCEL: &str = "
    local ids, keys = {}, {}
    for at = 1, #ARGV, 2 do
        ids[#ids + 1] = ARGV[at]
        keys[#keys + 1] = ARGV[at + 1]
    end
    redis.call('ZREM', 'bare:due', unpack(ids))
    redis.call('HDEL', 'bare:rows', unpack(ids))
    redis.call('HDEL', 'bare:keys', unpack(keys))";

const RESCHEDULE: &str = "
    local zadd, values = {}, {}
    for at = 1, #ARGV, 3 do
        zadd[#zadd + 1], zadd[#zadd + 2] = ARGV[at + 1], ARGV[at]
        values[#values + 1], values[#values + 2] = ARGV[at], ARGV[at + 2]
    end
    redis.call('HSET', 'bare:rows', unpack(values))
    redis.call('ZADD', 'bare:due', 'XX', unpack(zadd))";

const TAKE: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ids = redis.call('ZRANGEBYSCORE', 'bare:due', '-inf', now, 'LIMIT', 0, ARGV[1])
    if #ids == 0 then return { ids, ids } end
    redis.call('ZREM', 'bare:due', unpack(ids))
    local leased = {}
    for at, id in ipairs(ids) do
        leased[2 * at - 1] = now + 30000
        leased[2 * at] = id
    end
    redis.call('ZADD', 'bare:leased', unpack(leased))
    return { ids, redis.call('HMGET', 'bare:rows', unpack(ids)) }";

const FINISH: &str = "
    local ids, keys = {}, {}
    for at = 1, #ARGV, 2 do
        ids[#ids + 1] = ARGV[at]
        keys[#keys + 1] = ARGV[at + 1]
    end
    redis.call('ZREM', 'bare:leased', unpack(ids))
    redis.call('HDEL', 'bare:rows', unpack(ids))
    redis.call('HDEL', 'bare:keys', unpack(keys))";

#[derive(Clone)]
pub(crate) struct BareRows {
    connection: MultiplexedConnection,
    add: Script,
    cancel: Script,
    reschedule: Script,
    take: Script,
    finish: Script,
}

pub(crate) fn key(id: &Id) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

fn due(delay: Duration) -> Result<u64, Error> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    // Rounded up, as one that is early would not be late.
    Ok((now + delay).as_micros().div_ceil(1_000) as u64)
}

impl Side for BareRows {
    async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self {
            connection: connection(url).await?,
            add: Script::new(ADD),
            cancel: Script::new(CANCEL),
            reschedule: Script::new(RESCHEDULE),
            take: Script::new(TAKE),
            finish: Script::new(FINISH),
        })
    }

    async fn add(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        let each: Vec<_> = ids.iter().map(|id| (*id, delay)).collect();
        self.add_each(&each).await
    }

    async fn add_each(&self, ids: &[(Id, Duration)]) -> Result<(), Error> {
        let mut call = self.add.prepare_invoke();
        for (id, delay) in ids {
            call.arg(id)
                .arg(due(*delay)?)
                .arg(key(id))
                .arg(&[b'x'; HEAD + PAYLOAD][..]);
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    async fn cancel(&self, ids: &[Id]) -> Result<(), Error> {
        let mut call = self.cancel.prepare_invoke();
        for id in ids {
            call.arg(id).arg(key(id));
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    async fn reschedule(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        let mut call = self.reschedule.prepare_invoke();
        for id in ids {
            call.arg(id).arg(due(delay)?).arg(&[b'y'; HEAD + PAYLOAD][..]);
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    async fn drain(
        &self,
        count: usize,
        due: impl Fn(&Id) -> Instant + Send + Sync + Clone + 'static,
    ) -> Result<Vec<Duration>, Error> {
        side::drain(self, count, due).await
    }
}

impl Taking for BareRows {
    type Taken = Id;

    async fn take(&self) -> Result<Vec<(Id, Id)>, Error> {
        loop {
            let mut call = self.take.prepare_invoke();
            let (ids, _rows): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
                call.arg(LEASE).invoke_async(&mut self.connection.clone()).await?;
            if !ids.is_empty() {
                let ids = ids.into_iter().filter_map(|id| id.try_into().ok());
                return Ok(ids.map(|id| (id, id)).collect());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn finish(&self, taken: Vec<Id>) -> Result<(), Error> {
        let mut call = self.finish.prepare_invoke();
        for id in &taken {
            call.arg(id).arg(key(id));
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }
}
