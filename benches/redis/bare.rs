//! A ZSET and the bare commands: the least that a server must do.

use std::time::{Duration, Instant};

use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::side::{self, Id, Side, Taking};
use crate::{Error, connection};

const DUE: &str = "bare:due";
const LEASED: &str = "bare:leased";
/// How many are leased in one call.
const LEASE: usize = 100;

/// By a script, as finding and moving must be one step.
const TAKE: &str = "
    local now = redis.call('TIME')[1] * 1000 + math.floor(redis.call('TIME')[2] / 1000)
    local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
    if #ids == 0 then return ids end
    redis.call('ZREM', KEYS[1], unpack(ids))
    local leased = {}
    for at, id in ipairs(ids) do
        leased[2 * at - 1] = now + 30000
        leased[2 * at] = id
    end
    redis.call('ZADD', KEYS[2], unpack(leased))
    return ids";

#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    take: Script,
}

impl Bare {
    async fn zadd(&self, ids: impl Iterator<Item = (Id, Duration)>, only_there: bool) -> Result<(), Error> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let mut command = redis::cmd("ZADD");
        command.arg(DUE);
        if only_there {
            command.arg("XX");
        }
        for (id, delay) in ids {
            // Rounded up, as one that is early would not be late.
            command
                .arg((now + delay).as_micros().div_ceil(1_000) as u64)
                .arg(&id);
        }
        command.query_async::<()>(&mut self.connection.clone()).await?;
        Ok(())
    }
}

impl Side for Bare {
    async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self {
            connection: connection(url).await?,
            take: Script::new(TAKE),
        })
    }

    async fn add(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        self.zadd(ids.iter().map(|id| (*id, delay)), false).await
    }

    async fn add_each(&self, ids: &[(Id, Duration)]) -> Result<(), Error> {
        self.zadd(ids.iter().copied(), false).await
    }

    async fn cancel(&self, ids: &[Id]) -> Result<(), Error> {
        let mut command = redis::cmd("ZREM");
        command.arg(DUE);
        for id in ids {
            command.arg(id);
        }
        command.query_async::<()>(&mut self.connection.clone()).await?;
        Ok(())
    }

    async fn reschedule(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        self.zadd(ids.iter().map(|id| (*id, delay)), true).await
    }

    async fn drain(
        &self,
        count: usize,
        due: impl Fn(&Id) -> Instant + Send + Sync + Clone + 'static,
    ) -> Result<Vec<Duration>, Error> {
        side::drain(self, count, due).await
    }
}

impl Taking for Bare {
    type Taken = Id;

    async fn take(&self) -> Result<Vec<(Id, Id)>, Error> {
        loop {
            let mut call = self.take.key(DUE);
            let call = call.key(LEASED).arg(LEASE);
            let ids: Vec<Vec<u8>> = call.invoke_async(&mut self.connection.clone()).await?;
            if !ids.is_empty() {
                let ids = ids.into_iter().filter_map(|id| id.try_into().ok());
                return Ok(ids.map(|id| (id, id)).collect());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn finish(&self, taken: Vec<Id>) -> Result<(), Error> {
        let mut command = redis::cmd("ZREM");
        command.arg(LEASED);
        for id in &taken {
            command.arg(id);
        }
        command.query_async::<()>(&mut self.connection.clone()).await?;
        Ok(())
    }
}
