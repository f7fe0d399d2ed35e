//! Opens the rows of a process of the service, in any store.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::{RedisBackend, RocketMqBackend};
use delayline::rocketmq::RocketMqOptions;
use delayline::store::{RedisStore, Store, Target};
use delayline::{Context, Failure, Scheduler};
use tokio::time::sleep;

use crate::service::{OnMySql, OnPostgres, OnSqlite, Service};
use crate::verbs::{self, Ask, Said};

/// The kind whose effect is in a transaction with its end, where there are transactions.
pub(crate) const EFFECT: &str = "order.cancel";
/// The kind whose handlers only start.
pub(crate) const PLAIN: &str = "order.remind";
/// The kind whose tasks are claimed without a worker.
pub(crate) const CLAIMED: &str = "order.print";
/// All kinds, each paused and resumed by the operator.
pub(crate) const KINDS: [&str; 3] = [EFFECT, PLAIN, CLAIMED];
/// After how many attempts one of these is dead.
pub(crate) const PLAIN_ATTEMPTS: u32 = 4;
/// Short, so that the claims of dead workers soon go to others.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Postgres,
    MariaDb,
    Sqlite,
    Redis,
}

/// What a process needs to take part.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) kept: Kept,
    pub(crate) rows: String,
    /// The Redis that carries wake-ups; none: the table does.
    pub(crate) precise: Option<String>,
    pub(crate) nameserver: String,
    /// The name of the topic and of the group.
    pub(crate) topic: String,
}

const KEPT: &str = "DELAYLINE_NEMESIS_KEPT";
const ROWS: &str = "DELAYLINE_NEMESIS_ROWS";
const PRECISE: &str = "DELAYLINE_NEMESIS_PRECISE";
const NAMESERVER: &str = "DELAYLINE_NEMESIS_NAMESERVER";
const TOPIC: &str = "DELAYLINE_NEMESIS_TOPIC";

impl Address {
    /// Returns the environment for another process.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            (KEPT, format!("{:?}", self.kept).into()),
            (ROWS, self.rows.clone().into()),
            (NAMESERVER, self.nameserver.clone().into()),
            (TOPIC, self.topic.clone().into()),
        ];
        environment.extend(self.precise.clone().map(|url| (PRECISE, url.into())));
        environment
    }

    /// Reads the environment of this process, if it has one.
    pub(crate) fn told() -> Option<Self> {
        let told = |name| std::env::var(name).ok();
        let kept = told(KEPT)?;
        let all = [Kept::Postgres, Kept::MariaDb, Kept::Sqlite, Kept::Redis];
        Some(Self {
            kept: all.into_iter().find(|one| format!("{one:?}") == kept)?,
            rows: told(ROWS)?,
            precise: told(PRECISE),
            nameserver: told(NAMESERVER)?,
            topic: told(TOPIC)?,
        })
    }
}

/// A service in this process: its store, its own tables, and its scheduler.
#[derive(Clone)]
pub(crate) struct Home {
    service: AnyService,
    pub(crate) scheduler: Scheduler,
}

/// A transaction of the service's.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(crate) effect: Option<String>,
    pub(crate) open_for: Duration,
    pub(crate) rolls_back: bool,
}

#[derive(Clone)]
enum AnyService {
    Postgres(OnPostgres),
    MariaDb(OnMySql),
    Sqlite(OnSqlite),
    Redis(RedisStore),
}

/// Does the same on each kind of database; another thing on Redis, which has no transactions.
macro_rules! on {
    ($service:expr, $one:ident => $database:expr, redis => $redis:expr) => {
        match $service {
            AnyService::Postgres($one) => $database,
            AnyService::MariaDb($one) => $database,
            AnyService::Sqlite($one) => $database,
            AnyService::Redis(_) => $redis,
        }
    };
}
impl Home {
    /// Opens it, as often as needed: a store may be away, and a process that is stopped meanwhile has no answer in
    /// time.
    pub(crate) async fn open(address: Address) -> Self {
        let service = AnyService::open(address.kept, &address.rows).await;
        let store: Arc<dyn Store> = match &service {
            AnyService::Redis(store) => Arc::new(store.clone()),
            AnyService::Postgres(service) => service.store(),
            AnyService::MariaDb(service) => service.store(),
            AnyService::Sqlite(service) => service.store(),
        };
        let options = RocketMqOptions::new(&address.nameserver)
            .topic(&address.topic)
            .group(&address.topic)
            .lazy();
        let levels = loop {
            match RocketMqBackend::connect(options.clone()).await {
                Err(error) if error.is_transient() => sleep(AGAIN).await,
                levels => break levels.unwrap(),
            }
        };
        let mut builder = Scheduler::builder(store).carrier(Arc::new(levels));
        if let Some(precise) = &address.precise {
            let precise = RedisBackend::builder(precise).lease(LEASE).build().unwrap();
            builder = builder.precise(Arc::new(precise));
        }
        Self {
            service,
            scheduler: builder.build().unwrap(),
        }
    }

    /// Makes the tables.
    pub(crate) async fn prepare(&self) {
        on!(&self.service, service => service.prepare().await, redis => ());
    }

    /// Says whether a service has transactions here.
    pub(crate) fn has_transactions(&self) -> bool {
        on!(&self.service, _service => true, redis => false)
    }

    /// Finishes a handler whose effect is to happen once.
    pub(crate) async fn finish(&self, context: &Context) -> Result<(), Failure> {
        on!(&self.service, service => {
            let mut tx = service.begin().await?;
            service.effect(&mut tx, &context.id().to_string()).await?;
            context.finish_in(service.join(&mut tx)).await?;
            service.commit(tx).await?;
        }, redis => ());
        Ok(())
    }

    /// Asks within a transaction that has an effect of its own, if it is to have one; it is held open for a while, and
    /// then committed or rolled back.
    pub(crate) async fn ask_within(&self, target: Target, ask: Ask, within: Within) -> Result<Said, Failure> {
        on!(&self.service, service => {
            let mut tx = service.begin().await?;
            if let Some(effect) = &within.effect {
                service.effect(&mut tx, effect).await?;
            }
            let asked = verbs::ask_in(&self.scheduler, service.join(&mut tx), target, ask).await?;
            let said = asked.said();
            sleep(within.open_for).await;
            if within.rolls_back {
                drop(tx);
                return Ok(Said::RolledBack);
            }
            service.commit(tx).await?;
            asked.committed(&self.scheduler).await;
            Ok(said)
        }, redis => unreachable!("Redis has no transactions"))
    }

    /// Returns the effects, in order.
    pub(crate) async fn effects(&self) -> Vec<String> {
        on!(&self.service, service => service.effects().await, redis => Vec::new())
    }
}

impl AnyService {
    async fn open(kept: Kept, url: &str) -> Self {
        loop {
            let url = url.to_owned();
            // It panics where a store cannot be opened.
            let opened = tokio::spawn(async move {
                match kept {
                    Kept::Postgres => Self::Postgres(OnPostgres::open(url).await),
                    Kept::MariaDb => Self::MariaDb(OnMySql::open(url).await),
                    Kept::Sqlite => Self::Sqlite(OnSqlite::open(url).await),
                    Kept::Redis => Self::Redis(RedisStore::new(&url).unwrap()),
                }
            });
            match opened.await {
                Ok(service) => return service,
                Err(_) => sleep(AGAIN).await,
            }
        }
    }
}

/// How long a process waits before it tries again to begin.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);
