//! The servers that a configuration names.

use std::sync::Arc;
use std::time::Duration;

use delayline::Scheduler;
use delayline::backend::{Backend, WheelBackend};
use delayline::clock::Clock;
use delayline::store::{History, MemoryStore, Store};
use tokio::time::{Instant, sleep};

use super::config::Config;
use super::test_clock::TestClock;
use crate::Failure;
use crate::database::Address;

/// For how long it is waited before a store is opened again that was away: doubled each time, up to the longest.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// How often it is logged that it is away.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// What the scheduler stands on.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    carrier: Option<Arc<dyn Backend>>,
    precise: Option<Arc<dyn Backend>>,
    /// Whether it carries wake-ups by itself, on a clock that is turned.
    is_test: bool,
    history: History,
    clock: Clock,
}

impl Parts {
    /// Connects to the store, for which it waits if it is away; backends connect when they are needed.
    pub(crate) async fn open(
        config: &Config,
        in_memory: bool,
        test_clock: Option<&TestClock>,
    ) -> Result<Self, Failure> {
        if let Some(test_clock) = test_clock {
            return Ok(Self {
                store: test_clock.store(),
                // Others than this process hold wake-ups for real time.
                carrier: None,
                precise: Some(Arc::new(WheelBackend::with_clock(test_clock.clock()))),
                is_test: true,
                history: config.history.0,
                clock: test_clock.clock(),
            });
        }
        let store = match in_memory {
            true => Arc::new(MemoryStore::new()),
            false => opened(&address(config)).await?,
        };
        Ok(Self {
            store,
            carrier: carrier(config).await?,
            precise: precise(config)?,
            is_test: false,
            history: config.history.0,
            clock: Clock::system(),
        })
    }

    /// Whether all of it can be used, as far as can be said without connecting.
    pub(crate) fn check(config: &Config) -> Result<(), Failure> {
        address(config).check()?;
        #[cfg(not(feature = "rocketmq"))]
        if config.rocketmq.is_some() {
            return Err(not_built("rocketmq"));
        }
        #[cfg(not(feature = "otlp"))]
        if config.otlp.is_some() {
            return Err(not_built("otlp"));
        }
        #[cfg(feature = "rocketmq")]
        if let Some(rocketmq) = &config.rocketmq {
            rocketmq
                .options()
                .check()
                .map_err(|error| refused(config, "rocketmq", error))?;
        }
        precise(config).map(drop)
    }

    /// The servers that carry wake-ups.
    pub(crate) fn backends(&self) -> Vec<Arc<dyn Backend>> {
        let backends = self.carrier.iter().chain(&self.precise);
        backends.filter(|_| !self.is_test).cloned().collect()
    }

    /// What carries wake-ups beside the precise backend.
    pub(crate) fn scheduler(&self) -> Result<Scheduler, Failure> {
        let mut builder = Scheduler::builder(Arc::clone(&self.store))
            .history(self.history)
            .clock(self.clock.clone());
        if let Some(carrier) = &self.carrier {
            builder = builder.carrier(Arc::clone(carrier));
        }
        if let Some(precise) = &self.precise {
            builder = builder.precise(Arc::clone(precise));
        }
        Ok(builder.build()?)
    }
}

/// Where the store is.
fn address(config: &Config) -> Address {
    Address::of_setting(config.name_of("store.url"), config.store_url())
}

/// What the store is called, before there is one.
pub(crate) fn store_name(config: &Config) -> &'static str {
    match address(config).scheme() {
        "postgres" | "postgresql" => "postgres",
        "mysql" | "mariadb" => "mysql",
        "" | "sqlite" => "sqlite",
        _ => "redis",
    }
}

/// The store, as soon as it answers. What time does not mend is an error, such as a wrong password or a missing table.
async fn opened(address: &Address) -> Result<Arc<dyn Store>, Failure> {
    let mut pause = AGAIN;
    let mut warned: Option<Instant> = None;
    loop {
        let error = match address.serve().await {
            Err(Failure::Server(error)) if error.is_transient() => error,
            opened => return opened,
        };
        if warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            warned = Some(Instant::now());
            tracing::warn!(
                %error,
                "the store does not answer, and the server starts when it does: see that it is up, and that store.url is right"
            );
        }
        sleep(pause).await;
        pause = (2 * pause).min(AGAIN_AT_MOST);
    }
}

#[cfg(feature = "redis")]
fn precise(config: &Config) -> Result<Option<Arc<dyn Backend>>, Failure> {
    let Some(redis) = &config.redis else {
        return Ok(None);
    };
    let backend = delayline::backend::RedisBackend::new(redis.url.reveal());
    Ok(Some(Arc::new(
        backend.map_err(|error| refused(config, "redis", error))?,
    )))
}

#[cfg(not(feature = "redis"))]
fn precise(config: &Config) -> Result<Option<Arc<dyn Backend>>, Failure> {
    match &config.redis {
        Some(_) => Err(not_built("redis")),
        None => Ok(None),
    }
}

#[cfg(feature = "rocketmq")]
async fn carrier(config: &Config) -> Result<Option<Arc<dyn Backend>>, Failure> {
    let Some(rocketmq) = &config.rocketmq else {
        return Ok(None);
    };
    // A server starts while its brokers are away: tasks are only later by then.
    let options = rocketmq.options().lazy();
    let backend = delayline::backend::RocketMqBackend::connect(options).await;
    Ok(Some(Arc::new(
        backend.map_err(|error| refused(config, "rocketmq", error))?,
    )))
}

#[cfg(not(feature = "rocketmq"))]
async fn carrier(config: &Config) -> Result<Option<Arc<dyn Backend>>, Failure> {
    match &config.rocketmq {
        Some(_) => Err(not_built("rocketmq")),
        None => Ok(None),
    }
}

/// What a server's client refuses, by what said it.
#[cfg(any(feature = "redis", feature = "rocketmq"))]
fn refused(config: &Config, table: &str, error: delayline::Error) -> Failure {
    let key = match &error {
        delayline::Error::Invalid { field, .. } => match *field {
            // And what stands in it, such as a certificate.
            field if field.starts_with("redis url") => "url",
            "nameservers" => "nameserver",
            field => field,
        },
        _ => return error.into(),
    };
    Failure::Argument(format!("{}: {error}", config.name_of(&format!("{table}.{key}"))))
}

#[cfg(not(all(feature = "otlp", feature = "redis", feature = "rocketmq")))]
pub(super) fn not_built(feature: &str) -> Failure {
    Failure::Argument(format!(
        "[{feature}] needs the feature {feature}, which this build does not have"
    ))
}
