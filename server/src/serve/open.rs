//! The servers that a configuration names.

use std::sync::Arc;

use delayline::Scheduler;
use delayline::backend::Backend;
use delayline::store::{History, MemoryStore, Store};

use super::config::Config;
use crate::Failure;
use crate::database::Address;

/// What the scheduler stands on.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    carrier: Option<Arc<dyn Backend>>,
    precise: Option<Arc<dyn Backend>>,
    history: History,
}

impl Parts {
    /// Connects to the store; backends connect when they are needed.
    pub(crate) async fn open(config: &Config, in_memory: bool) -> Result<Self, Failure> {
        let store = match in_memory {
            true => Arc::new(MemoryStore::new()),
            false => {
                Address::of_setting("store.url", config.store.url.reveal())
                    .serve()
                    .await?
            }
        };
        Ok(Self {
            store,
            carrier: carrier(config).await?,
            precise: precise(config)?,
            history: config.history.0,
        })
    }

    /// Whether all of it can be used, as far as can be said without connecting.
    pub(crate) fn check(config: &Config) -> Result<(), Failure> {
        Address::of_setting("store.url", config.store.url.reveal()).check()?;
        #[cfg(not(feature = "rocketmq"))]
        if config.rocketmq.is_some() {
            return Err(not_built("rocketmq"));
        }
        #[cfg(not(feature = "otlp"))]
        if config.otlp.is_some() {
            return Err(not_built("otlp"));
        }
        precise(config).map(drop)
    }

    pub(crate) fn backends(&self) -> Vec<Arc<dyn Backend>> {
        self.carrier.iter().chain(&self.precise).cloned().collect()
    }

    /// What carries wake-ups beside the precise backend.
    pub(crate) fn scheduler(&self) -> Result<Scheduler, Failure> {
        let mut builder = Scheduler::builder(Arc::clone(&self.store)).history(self.history);
        if let Some(carrier) = &self.carrier {
            builder = builder.carrier(Arc::clone(carrier));
        }
        if let Some(precise) = &self.precise {
            builder = builder.precise(Arc::clone(precise));
        }
        Ok(builder.build()?)
    }
}

#[cfg(feature = "redis")]
fn precise(config: &Config) -> Result<Option<Arc<dyn Backend>>, Failure> {
    let Some(redis) = &config.redis else {
        return Ok(None);
    };
    let backend = delayline::backend::RedisBackend::new(redis.url.reveal())?;
    Ok(Some(Arc::new(backend)))
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
    let backend = delayline::backend::RocketMqBackend::connect(options).await?;
    Ok(Some(Arc::new(backend)))
}

#[cfg(not(feature = "rocketmq"))]
async fn carrier(config: &Config) -> Result<Option<Arc<dyn Backend>>, Failure> {
    match &config.rocketmq {
        Some(_) => Err(not_built("rocketmq")),
        None => Ok(None),
    }
}

#[cfg(not(all(feature = "otlp", feature = "redis", feature = "rocketmq")))]
pub(super) fn not_built(feature: &str) -> Failure {
    Failure::Argument(format!(
        "[{feature}] needs the feature {feature}, which this build does not have"
    ))
}
