//! Wake-ups through RocketMQ brokers: by their delay levels, or by timer messages.

mod backlog;
mod backoff;
mod by_levels;
mod by_timers;
mod connection;
mod consumer;
mod flow;
mod handover;
mod holding;
mod lines;
mod lookout;
mod master;
mod masters;
mod offers;
mod producer;
mod seen;
mod timers;
mod wanted;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use self::connection::Connection;
use self::handover::Handover;
pub use self::timers::RocketMqTimers;
use self::wanted::Wanted;
use crate::backend::{Arrival, Backend, Delays, Departure, SendError};
use crate::rocketmq::{NAME, RocketMqOptions};
use crate::{Error, Wake};

/// Carries wake-ups as delayed messages of RocketMQ brokers, through their delay levels.
///
/// Each wake-up is one small message on a topic of its own. The level table is the brokers' own. A process that
/// only sends never consumes; the workers of one consumer group share the messages. A received wake-up that is not
/// acknowledged within 10 s is answered all the same and left to the sweep; none is ever sent back to the broker.
///
/// Nameservers and brokers may be of any version since 4.8, with or without access control and TLS.
#[derive(Debug)]
pub struct RocketMqBackend {
    /// Behind a pointer that hides its type: the client's types are nested so deeply that whoever compiles code
    /// with one of them in it must raise the compiler's limit.
    connection: Box<dyn Backend>,
    handover: Arc<Handover>,
}

impl RocketMqBackend {
    /// Connects to the nameservers, reads the masters' level tables, and makes the topic where it is missing.
    ///
    /// The options may be just the nameservers: `RocketMqBackend::connect("localhost:9876")`.
    pub async fn connect(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        Self::open(options.into(), Wanted::levels).await
    }

    /// Apart from `connect`, which is compiled where it is called.
    fn open(
        options: RocketMqOptions,
        wanted: fn(&RocketMqOptions) -> Wanted,
    ) -> Pin<Box<dyn Future<Output = Result<Self, Error>> + Send>> {
        Box::pin(async move {
            let wanted = wanted(&options);
            let connection = Connection::open(options, wanted).await?;
            Ok(Self {
                handover: connection.handover(),
                connection: Box::new(connection),
            })
        })
    }
}

#[async_trait]
impl Backend for RocketMqBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn delays(&self) -> Delays {
        self.connection.delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.connection.send(batch).await
    }

    /// Does nothing: a broker does not give a delayed message back.
    async fn remove(&self, _: &[Wake]) -> Result<(), Error> {
        Ok(())
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.connection.receive(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.handover.acknowledge(&arrivals);
    }

    fn foreign(&self) -> u64 {
        self.handover.foreign()
    }

    async fn health(&self) -> Result<(), Error> {
        self.connection.health().await
    }

    /// What has been received and not been acknowledged is left to other workers of the group.
    async fn close(&self) -> Result<(), Error> {
        self.connection.close().await
    }
}
