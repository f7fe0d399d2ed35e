//! Redis: keys of the run's own, for rows or for wake-ups alone, and bare commands.

mod bare;
mod bare_rows;
mod info;
mod memory;
mod scripts;
mod taking;
mod wakes;

use std::cell::Cell;
use std::sync::Arc;

use delayline::store::RedisStore;
use redis::aio::MultiplexedConnection;

use self::bare::Bare;
use self::bare_rows::BareRows;
use self::info::{info, told};
use self::wakes::Wakes;
use super::figure::Measured;
use super::ledger::ServerClock;
use super::names::Names;
use super::ours::Ours;
use super::side::Place;
use super::{Error, idle};
use crate::Failure;

/// A server.
pub(crate) struct Server {
    url: String,
    names: Names,
}

impl Server {
    /// One whose URL `option` has given. The bare commands are for one server, and not for several that stand together.
    pub(crate) fn named(option: &str, url: &str) -> Result<Self, Failure> {
        RedisStore::new(url)?;
        let is_one = url.starts_with("redis://") || url.starts_with("rediss://");
        if !is_one || redis::Client::open(url).is_err() {
            return Err(Failure::Argument(format!(
                "{option} is not shown, as it may hold a password: allowed is redis://user:password@host:port of one server"
            )));
        }
        Ok(Self {
            url: url.to_owned(),
            names: Names::new(),
        })
    }

    pub(crate) async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(self.url.as_str())?;
        Ok(client
            .get_multiplexed_async_connection_with_config(&config)
            .await?)
    }

    /// Removes all keys of the run.
    pub(crate) async fn clean(&self) -> Result<(), Error> {
        let mut connection = self.connection().await?;
        let mut cursor = 0_u64;
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("*{}*", self.names.run()))
                .arg("COUNT")
                .arg(1_000)
                .query_async(&mut connection)
                .await?;
            if !keys.is_empty() {
                redis::cmd("DEL").arg(keys).exec_async(&mut connection).await?;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}

/// What the clock of a server says.
async fn clock(connection: &MultiplexedConnection) -> Result<ServerClock, Error> {
    ServerClock::asked(|| async {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut connection.clone()).await?;
        // Exact to the µs, but what is due is due by whole ms.
        Ok(seconds * 1_000_000 + micros - 500)
    })
    .await
}

/// How many commands a server has had, but for those that ask for it.
struct Commands {
    connection: MultiplexedConnection,
    own: Cell<f64>,
}

impl Commands {
    async fn of(server: &Server) -> Result<Self, Error> {
        Ok(Self {
            connection: server.connection().await?,
            own: Cell::new(0.0),
        })
    }

    async fn so_far(&self) -> Result<Option<f64>, Error> {
        let all = info(&self.connection, "stats", "total_commands_processed").await?;
        Ok(Some(all - self.own.replace(self.own.get() + 1.0)))
    }
}

/// Where something is kept: the bare side, ours, and how one of several processes comes by what they share.
macro_rules! place {
    ($(#[$doc:meta])* $place:ident, $name:literal, $bare:ident, $ours:ident, $process:expr) => {
        $(#[$doc])*
        pub(crate) struct $place(pub(crate) Server);

        impl $place {
            fn process(&self, prefix: &str) -> Result<$ours, Error> {
                let process: fn(&str, &str) -> Result<$ours, Error> = $process;
                process(&self.0.url, prefix)
            }
        }

        impl Place for $place {
            type Limit = $bare;
            type Ours = $ours;

            fn name(&self) -> &'static str {
                $name
            }

            fn is_redis(&self) -> bool {
                true
            }

            async fn limit(&self) -> Result<$bare, Error> {
                Ok($bare::new(self.0.connection().await?, &self.0.names.next()))
            }

            async fn ours(&self) -> Result<$ours, Error> {
                self.process(&self.0.names.next())
            }

            async fn version(&self) -> Result<String, Error> {
                told(&self.0.connection().await?, "server", "redis_version").await
            }

            async fn memory_of_limit(&self, tasks: usize) -> Result<Vec<Measured>, Error> {
                memory::measure(&self.0.connection().await?, tasks, &async || self.limit().await).await
            }

            async fn memory(&self, tasks: usize) -> Result<Vec<Measured>, Error> {
                memory::measure(&self.0.connection().await?, tasks, &async || self.ours().await).await
            }

            async fn idle(&self, tasks: usize) -> Result<Vec<Measured>, Error> {
                let (prefix, commands) = (self.0.names.next(), Commands::of(&self.0).await?);
                let (worker, sender) = (self.process(&prefix)?, self.process(&prefix)?);
                idle::measure(worker, sender, tasks, &async || commands.so_far().await).await
            }

            async fn clean(&self) -> Result<(), Error> {
                self.0.clean().await
            }
        }
    };
}

place!(
    /// Where rows are kept.
    RowsPlace, "redis", BareRows, Ours,
    |url, prefix| Ours::over(Arc::new(RedisStore::builder(url).prefix(prefix).build()?))
);
place!(
    /// Where wake-ups are kept, and no rows.
    WakesPlace, "redis-wake-ups", Bare, Wakes, Wakes::new
);
