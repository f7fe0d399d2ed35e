//! The servers that are measured, and what each allows.

use super::compare::{compare, timers};
use super::figure::Line;
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
use super::workload::Workload;
use super::{Error, Order};
use crate::Failure;
use crate::database::Address;

/// The option by which stores are named.
const STORE: &str = "--store";

/// Where tasks can be kept.
enum Named {
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
    fn store(address: &Address) -> Result<Self, Failure> {
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

    fn allows(&self, workload: Workload) -> bool {
        match workload {
            Workload::W7 => false,
            Workload::W4 => with_place!(self, place => place.is_redis()),
            _ => true,
        }
    }

    async fn measure(&self, workload: Workload, order: &Order) -> Result<Vec<Line>, Error> {
        with_place!(self, place => compare(place, workload, order).await)
    }

    async fn clean(&self) -> Result<(), Error> {
        with_place!(self, place => place.clean().await)
    }

    fn name(&self) -> &'static str {
        with_place!(self, place => place.name())
    }
}

/// All that were named.
pub(crate) struct Servers(Vec<Named>);

impl Servers {
    /// As options name them; nothing is connected to.
    pub(crate) fn named(stores: &[String], redis: Option<&str>) -> Result<Self, Failure> {
        const VARIABLE: &str = "DATABASE_URL";
        let mut servers = Vec::new();
        for store in stores {
            servers.push(Named::store(&Address::given(STORE, Some(store))?)?);
        }
        if let Some(url) = redis {
            servers.push(wakes(url)?);
        }
        // Whoever names a server means no other.
        if servers.is_empty() && std::env::var_os(VARIABLE).is_some() {
            servers.push(Named::store(&Address::given(STORE, None)?)?);
        }
        Ok(Self(servers))
    }

    /// What is measured: what was named, each of which a server must allow, or else all that any does.
    pub(crate) fn choose(&self, wanted: Option<Vec<Workload>>) -> Result<Vec<Workload>, Failure> {
        let is_allowed = |workload: &Workload| {
            *workload == Workload::W7 || self.0.iter().any(|server| server.allows(*workload))
        };
        let Some(wanted) = wanted else {
            return Ok(Workload::ALL.into_iter().filter(is_allowed).collect());
        };
        match wanted.iter().find(|workload| !is_allowed(workload)) {
            None => Ok(wanted),
            Some(workload) => Err(Failure::Argument(format!(
                "WORKLOAD is \"{workload}\": it is allowed with {}",
                match workload {
                    Workload::W4 => "--redis redis://…, or with --store redis://…",
                    _ => "--store, DATABASE_URL or --redis",
                }
            ))),
        }
    }

    /// Each workload on each server that allows it.
    pub(crate) async fn measure(&self, workloads: &[Workload], order: &Order) -> Result<Vec<Line>, Failure> {
        let mut planned = Vec::new();
        for server in &self.0 {
            let allowed = workloads.iter().filter(|workload| server.allows(**workload));
            planned.extend(allowed.map(|&workload| (server, workload)));
        }
        let alone = workloads.contains(&Workload::W7);
        order
            .bar
            .set_length(((planned.len() + usize::from(alone)) * order.runs) as u64);
        let mut lines = Vec::new();
        for (server, workload) in planned {
            let measured = server.measure(workload, order).await;
            lines.extend(measured.map_err(|error| failed(server.name(), workload, &error))?);
        }
        if alone {
            let measured = timers(order).await;
            lines.extend(measured.map_err(|error| failed("the process", Workload::W7, &error))?);
        }
        Ok(lines)
    }

    /// The version of each, as it says; what it does not say is left out.
    pub(crate) async fn versions(&self) -> Vec<(&'static str, String)> {
        let mut versions = Vec::new();
        for server in &self.0 {
            let version = with_place!(server, place => place.version().await);
            versions.extend(version.ok().map(|version| (server.name(), version)));
        }
        versions
    }

    /// Removes what was made on any of them; tells the first of the failures.
    pub(crate) async fn clean(&self) -> Result<(), Failure> {
        let mut all = Ok(());
        for server in &self.0 {
            let cleaned = server.clean().await.map_err(|error| {
                let name = server.name();
                Failure::Found(format!("what was made on {name} may be there still: {error}"))
            });
            all = all.and(cleaned);
        }
        all
    }
}

/// A Redis for wake-ups alone.
#[cfg(feature = "redis")]
fn wakes(url: &str) -> Result<Named, Failure> {
    Ok(Named::Wakes(WakesPlace(Server::named("--redis", url)?)))
}

#[cfg(not(feature = "redis"))]
fn wakes(_: &str) -> Result<Named, Failure> {
    Err(Failure::Argument(
        "--redis is given, but needs the feature redis, which this build does not have".to_owned(),
    ))
}

fn failed(server: &str, workload: Workload, error: &Error) -> Failure {
    Failure::Found(format!("{workload} on {server} could not be measured: {error}"))
}
