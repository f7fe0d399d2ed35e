//! A place for tasks, as an option names it.

use std::sync::Arc;
#[cfg(feature = "rocketmq")]
use std::time::Duration;

#[cfg(feature = "rocketmq")]
use delayline::backend::Backend;
use delayline::store::Store;

use super::compare::compare;
use super::figure::Line;
#[cfg(feature = "rocketmq")]
use super::figure::Measured;
#[cfg(feature = "mysql")]
use super::mysql::MySql;
#[cfg(feature = "postgres")]
use super::postgres::Postgres;
#[cfg(feature = "redis")]
use super::redis::{RowsPlace, Server, WakesPlace};
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "redis"
))]
use super::side::Place as _;
#[cfg(feature = "sqlite")]
use super::sqlite::Sqlite;
#[cfg(feature = "rocketmq")]
use super::work;
use super::workload::Workload;
use super::{Error, Order};
use crate::Failure;
use crate::database::Address;

/// The option by which stores are named.
pub(crate) const STORE: &str = "--store";

/// Where tasks can be kept.
pub(crate) enum Named {
    #[cfg(feature = "sqlite")]
    Sqlite(Sqlite),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
    #[cfg(feature = "mysql")]
    MySql(MySql),
    #[cfg(feature = "redis")]
    Rows(RowsPlace),
    #[cfg(feature = "redis")]
    Wakes(WakesPlace),
}

/// Does the same with each kind of place.
macro_rules! with_place {
    ($named:expr, $place:ident => $with:expr) => {
        match $named {
            #[cfg(feature = "sqlite")]
            Named::Sqlite($place) => $with,
            #[cfg(feature = "postgres")]
            Named::Postgres($place) => $with,
            #[cfg(feature = "mysql")]
            Named::MySql($place) => $with,
            #[cfg(feature = "redis")]
            Named::Rows($place) => $with,
            #[cfg(feature = "redis")]
            Named::Wakes($place) => $with,
        }
    };
}

impl Named {
    /// As `--store` or the environment names it; nothing is connected to.
    pub(crate) fn store(address: &Address) -> Result<Self, Failure> {
        match address.scheme() {
            #[cfg(feature = "sqlite")]
            "" | "sqlite" => Sqlite::beside(address.file()?)
                .map(Self::Sqlite)
                .map_err(Failure::Argument),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = address.options(["postgres", "postgresql"])?;
                Ok(Self::Postgres(Postgres::new(options)))
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let options = address.options(["mysql", "mariadb"])?;
                Ok(Self::MySql(MySql::new(options)))
            }
            #[cfg(feature = "redis")]
            scheme if scheme.starts_with("redis") => {
                Ok(Self::Rows(RowsPlace(Server::named(STORE, address.text())?)))
            }
            _ => Err(address.unknown()),
        }
    }

    pub(crate) fn allows(&self, workload: Workload) -> bool {
        match workload {
            Workload::W7 | Workload::C1 | Workload::C2 | Workload::C3 => false,
            Workload::W4 => with_place!(self, place => place.is_redis()),
            _ => true,
        }
    }

    pub(crate) async fn measure(&self, workload: Workload, order: &Order) -> Result<Vec<Line>, Error> {
        with_place!(self, place => compare(place, workload, order).await)
    }

    /// Has the server do what it would otherwise do beside the measurement, after many rows were written.
    pub(crate) async fn settle(&self) -> Result<(), Error> {
        with_place!(self, place => place.settle().await)
    }

    /// Removes everything that this run has made.
    pub(crate) async fn clean(&self) -> Result<(), Error> {
        with_place!(self, place => place.clean().await)
    }

    pub(crate) fn name(&self) -> &'static str {
        with_place!(self, place => place.name())
    }

    /// The version of the server, as it says.
    pub(crate) async fn version(&self) -> Result<String, Error> {
        with_place!(self, place => place.version().await)
    }

    /// A store with nothing in it, where rows are kept.
    pub(crate) async fn rows(&self) -> Result<Arc<dyn Store>, Error> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(place) => Ok(place.ours().await?.store),
            #[cfg(feature = "postgres")]
            Self::Postgres(place) => Ok(place.ours().await?.store),
            #[cfg(feature = "mysql")]
            Self::MySql(place) => Ok(place.ours().await?.store),
            #[cfg(feature = "redis")]
            Self::Rows(place) => Ok(place.ours().await?.store),
            #[cfg(feature = "redis")]
            Self::Wakes(_) => Err("wake-ups alone are no rows".into()),
        }
    }

    /// A Redis for wake-ups alone, as `--redis` names it.
    #[cfg(feature = "redis")]
    pub(crate) fn wakes(url: &str) -> Result<Self, Failure> {
        Ok(Self::Wakes(WakesPlace(Server::named("--redis", url)?)))
    }

    #[cfg(not(feature = "redis"))]
    pub(crate) fn wakes(_: &str) -> Result<Self, Failure> {
        Err(Failure::Argument(
            "--redis is given, but needs the feature redis, which this build does not have".to_owned(),
        ))
    }
}

#[cfg(feature = "rocketmq")]
impl Named {
    /// Rows in a file for a while, in the system's folder for such.
    #[cfg(feature = "sqlite")]
    pub(crate) fn passing() -> Result<Self, Failure> {
        let file = std::env::temp_dir().join("any.db");
        Sqlite::beside(file).map(Self::Sqlite).map_err(Failure::Argument)
    }

    #[cfg(not(feature = "sqlite"))]
    pub(crate) fn passing() -> Result<Self, Failure> {
        Err(Failure::Argument(
            "--rocketmq is given without --store, which needs the feature sqlite, which this build does not have"
                .to_owned(),
        ))
    }

    /// Whether it keeps rows, and not wake-ups alone.
    pub(crate) fn keeps_rows(&self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Self::Wakes(_) => false,
            #[cfg(any(
                feature = "sqlite",
                feature = "postgres",
                feature = "mysql",
                feature = "redis"
            ))]
            _ => true,
        }
    }

    /// Wake-ups alone, with nothing in it.
    pub(crate) async fn precise(&self) -> Result<Arc<dyn Backend>, Error> {
        match self {
            #[cfg(feature = "redis")]
            Self::Wakes(place) => Ok(place.ours().await?.backend),
            #[cfg(any(
                feature = "sqlite",
                feature = "postgres",
                feature = "mysql",
                feature = "redis"
            ))]
            _ => Err("rows are not wake-ups alone".into()),
        }
    }

    /// How late tasks start that are due `apart` from each other, by the least work.
    pub(crate) async fn late_if_bare(&self, tasks: usize, apart: Duration) -> Result<Measured, Error> {
        let apart = apart.as_millis() as i64;
        with_place!(self, place => work::steady(tasks, apart, &async || place.limit().await).await)
    }
}
