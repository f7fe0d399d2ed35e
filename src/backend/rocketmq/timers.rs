//! Timer messages, which brokers know since 5.0.

use async_trait::async_trait;

use super::RocketMqBackend;
use super::wanted::Wanted;
use crate::backend::{Arrival, Backend, Delays, Departure, SendError};
use crate::rocketmq::RocketMqOptions;
use crate::{Error, Wake};

/// Carries wake-ups as timer messages of RocketMQ brokers of version 5: any delay up to the brokers' longest, which is
/// 3 days by default, in one message.
///
/// It stands in the place of a [`RocketMqBackend`], and shares topic, group and messages with it: a service may go from
/// one to the other while its tasks are on their way. It costs a message where levels cost a chain, and is ten times
/// less punctual: a timer comes up to 1.2 s late. So it brings each task up to shortly before its time, and the
/// precise backend the rest of the way.
///
/// Every master must have `timerWheelEnable`, which is the default. A delay may be as long as the least
/// `timerMaxDelaySec` of them, so that each can stand in for each.
#[derive(Debug)]
pub struct RocketMqTimers(RocketMqBackend);

impl RocketMqTimers {
    /// Connects to the nameservers, asks the masters how long they hold a timer, and makes the topic where it is
    /// missing.
    ///
    /// Fails for good if a master is of a version before 5.0, or has its timers switched off; one that comes later is
    /// left out.
    pub async fn connect(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        RocketMqBackend::open(options.into(), Wanted::timers)
            .await
            .map(Self)
    }

    /// How many messages were received that were no wake-ups, and were dropped.
    pub fn foreign(&self) -> u64 {
        self.0.foreign()
    }
}

#[async_trait]
impl Backend for RocketMqTimers {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn delays(&self) -> Delays {
        self.0.delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.0.send(batch).await
    }

    /// Does nothing: a timer message that is taken back would need the moment for which it was sent, to the second.
    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.0.remove(wakes).await
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.0.receive(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.0.acknowledge(arrivals).await;
    }

    async fn health(&self) -> Result<(), Error> {
        self.0.health().await
    }

    /// What has been received and not been acknowledged is left to other workers of the group.
    async fn close(&self) -> Result<(), Error> {
        self.0.close().await
    }
}
