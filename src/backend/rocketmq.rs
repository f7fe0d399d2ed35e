//! Carries wake-ups through RocketMQ brokers: by their delay levels, or by timer messages.

mod backlog;
mod clients;
mod connection;
mod consumer_lag;
mod creation;
mod decision;
mod delay_mode;
mod delay_support;
mod first_check;
mod health_check;
mod master;
mod masters;
mod observation;
mod producer;
mod routing_table;
mod wake_listener;

use std::fmt;
use std::ops::Deref;

use async_trait::async_trait;

use self::connection::BrokerConnection;
use self::delay_mode::DelayMode;
use crate::Error;
use crate::backend::{Arrival, Backend, Delays, Departure, SendError, Wake};
use crate::rocketmq::{Hidden, NAME, RocketMqOptions};

/// Carries wake-ups as delayed messages of RocketMQ brokers, through their delay levels.
///
/// Each wake-up is one small message on a topic of its own. The level table is the brokers' own. A process that
/// only sends never consumes; the workers of one consumer group share the messages. A received wake-up that is not
/// acknowledged within 10 s is answered all the same and left to the sweep; none is ever sent back to the broker.
///
/// Nameservers and brokers may be of any version since 4.8, with or without access control and TLS.
pub struct RocketMqBackend(Connection);

impl RocketMqBackend {
    /// Connects to the nameservers, reads the masters' level tables, and creates the topic where it is missing.
    ///
    /// The options may be just the nameservers: `RocketMqBackend::connect("localhost:9876")`.
    pub async fn connect(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        open(options.into(), DelayMode::levels).await.map(Self)
    }
}

/// Carries wake-ups as timer messages of RocketMQ brokers of version 5: any delay up to the brokers' longest, which is
/// 3 days by default, in one message.
///
/// It takes the place of a [`RocketMqBackend`], and shares topic, group and messages with it: a service may switch from
/// one to the other while its tasks are on their way. It costs a message where levels cost a chain, and is ten times
/// less punctual: a timer comes up to 1.2 s late. So it brings each task up to shortly before its time, and the precise
/// backend the rest of the way.
///
/// Every master must have `timerWheelEnable`, which is the default. A delay may be as long as the least
/// `timerMaxDelaySec` of them, so that each can stand in for each.
pub struct RocketMqTimers(Connection);

impl RocketMqTimers {
    /// Connects to the nameservers, asks the masters how long they hold a timer, and creates the topic where it is
    /// missing.
    ///
    /// Fails for good if a master is of a version before 5.0, or has its timers switched off; one that comes later is
    /// left out.
    pub async fn connect(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        open(options.into(), DelayMode::timers).await.map(Self)
    }
}

/// A connection behind a pointer that hides its type: the client's types are nested so deeply that a crate with one of
/// them in its code must raise the compiler's limit.
type Connection = Box<dyn Deref<Target = BrokerConnection> + Send + Sync>;

/// Separate from `connect`, which is compiled where it is called.
fn open(
    options: RocketMqOptions,
    mode: fn(&RocketMqOptions) -> DelayMode,
) -> Hidden<'static, Result<Connection, Error>> {
    Box::pin(async move {
        let mode = mode(&options);
        let connection = BrokerConnection::open(options, mode).await?;
        Ok(Box::new(Box::new(connection)) as Connection)
    })
}

/// Levels and timers differ in the requests to masters and in the messages; everything else is the same.
macro_rules! backend {
    ($name:ident) => {
        #[async_trait]
        impl Backend for $name {
            fn name(&self) -> &'static str {
                NAME
            }

            fn delays(&self) -> Delays {
                self.0.masters.routes().delays()
            }

            async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
                self.0.send(batch).await
            }

            /// Does nothing: a broker does not give a delayed message back.
            async fn remove(&self, _: &[Wake]) -> Result<(), Error> {
                Ok(())
            }

            async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
                self.0.receive(max).await
            }

            async fn acknowledge(&self, arrivals: Vec<Arrival>) {
                let tickets = arrivals.into_iter().map(|arrival| arrival.ticket);
                self.0.listener.delivery_queue.acknowledge(tickets);
            }

            fn foreign(&self) -> u64 {
                self.0.listener.foreign()
            }

            async fn health(&self) -> Result<(), Error> {
                self.0.health().await
            }

            /// Messages that were received and not acknowledged are left to other workers of the group.
            async fn close(&self) -> Result<(), Error> {
                self.0.close().await;
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("delays", &self.delays())
                    .finish_non_exhaustive()
            }
        }
    };
}

backend!(RocketMqBackend);
backend!(RocketMqTimers);
