//! Measures Redis, with keys of the run's own, and bare commands: a packed value, an index of keys and a ZSET, written
//! in one step, are the least that keeps rows.

use std::sync::Arc;

use async_trait::async_trait;
use delayline::store::{RedisStore, Store};
use futures_util::TryStreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Client};

use super::Error;
use super::side::{Item, PAYLOAD, Place, STORE, Side, Verb, id};
use crate::Failure;

/// A row beside its payload: times, state, version and the like.
const HEAD: usize = 60;
const VALUE: [u8; HEAD + PAYLOAD.len()] = [b'x'; HEAD + PAYLOAD.len()];
const MOVED: [u8; HEAD + PAYLOAD.len()] = [b'y'; HEAD + PAYLOAD.len()];

/// How long a claim is held, in ms.
const LEASE: i64 = 30_000;

/// A server.
pub(crate) struct Redis(String);

impl Redis {
    /// Refuses several servers: the bare commands are for one.
    pub(crate) fn named(url: &str) -> Result<Self, Failure> {
        RedisStore::new(url)?;
        match Client::open(url) {
            Ok(_) => Ok(Self(url.to_owned())),
            Err(_) => Err(Failure::Argument(format!(
                "{STORE} is not shown, as it may hold a password: allowed is redis://user:password@host:port of one server"
            ))),
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(self.0.as_str())?;
        Ok(client
            .get_multiplexed_async_connection_with_config(&config)
            .await?)
    }
}

#[async_trait]
impl Place for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn store(&self, name: &str) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(RedisStore::builder(&self.0).prefix(name).build()?))
    }

    async fn bare(&self, name: &str) -> Result<Arc<dyn Side>, Error> {
        Ok(Arc::new(Bare {
            connection: self.connection().await?,
            keys: ["due", "leased", "rows", "names"].map(|key| format!("{name}:{key}")),
        }))
    }

    async fn clean(&self, prefix: &str) -> Result<(), Error> {
        let (mut scanning, mut connection) = (self.connection().await?, self.connection().await?);
        let made = scanning.scan_match::<_, Vec<u8>>(format!("*{prefix}*")).await?;
        let made: Vec<Vec<u8>> = made.try_collect().await?;
        for keys in made.chunks(1_000) {
            connection.del::<_, ()>(keys).await?;
        }
        Ok(())
    }
}

/// Bare keys.
struct Bare {
    connection: MultiplexedConnection,
    keys: [String; 4],
}

#[async_trait]
impl Side for Bare {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let [due, leased, rows, names] = &self.keys;
        let mut connection = self.connection.clone();
        let ids: Vec<_> = items
            .iter()
            .map(|item| id(item.number).as_bytes().to_vec())
            .collect();
        let keys = || items.iter().map(Item::key).collect::<Vec<_>>();
        let scored = |late| -> Vec<_> { items.iter().map(|item| item.due + late).zip(&ids).collect() };
        let values = |value| -> Vec<_> { ids.iter().map(|id| (id, value)).collect() };
        let mut step = redis::pipe();
        step.atomic();
        match verb {
            Verb::Add => {
                let named: Vec<_> = keys().into_iter().zip(&ids).collect();
                step.hset_multiple(rows, &values(&VALUE[..])).ignore();
                step.hset_multiple(names, &named).ignore();
                step.zadd_multiple(due, &scored(0));
            }
            Verb::Move => {
                step.hset_multiple(rows, &values(&MOVED[..])).ignore();
                step.cmd("ZADD").arg(due).arg("XX").arg("CH").arg(scored(0));
            }
            Verb::Claim => {
                step.zrem(due, &ids).ignore();
                step.zadd_multiple(leased, &scored(LEASE)).ignore();
                step.cmd("HMGET").arg(rows).arg(&ids);
                let (values,): (Vec<Vec<u8>>,) = step.query_async(&mut connection).await?;
                return Ok(values.len());
            }
            Verb::Cancel | Verb::Finish => {
                step.hdel(rows, &ids).ignore();
                step.hdel(names, keys()).ignore();
                step.zrem(if verb == Verb::Cancel { due } else { leased }, &ids);
            }
        }
        let (done,): (usize,) = step.query_async(&mut connection).await?;
        Ok(done)
    }

    /// Its own.
    async fn now(&self) -> Result<i64, Error> {
        let time = redis::cmd("TIME");
        let (seconds, micros): (i64, i64) = time.query_async(&mut self.connection.clone()).await?;
        Ok(seconds * 1_000 + micros / 1_000)
    }
}
