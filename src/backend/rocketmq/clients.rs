//! Holds the producer and the consumer in use, and replaces them.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rocketmq_client_rust::{DefaultMQProducer, DefaultMQPushConsumer};
use rocketmq_model::message::MessageQueue;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::producer;
use super::wake_listener::WakeListener;
use crate::Error;
use crate::rocketmq::{
    ClientFactory, Consumption, LISTENERS, RocketMqOptions, closed, failure, is_refusal, start_consumer,
    transient,
};

/// How long a server may take to answer a health check.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// The same over new connections: a slow server is better than none.
pub(super) const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// A producer, and a consumer once something is received.
///
/// Its futures must run in the client's runtime, and must not be abandoned: a half started client cannot be taken back.
pub(super) struct Clients {
    factory: ClientFactory,
    options: RocketMqOptions,
    listener: Arc<WakeListener>,
    producer: RwLock<Arc<DefaultMQProducer>>,
    consumer: Mutex<Consumer>,
}

enum Consumer {
    NotStarted,
    Started(Box<DefaultMQPushConsumer>),
    Closed,
}

impl Clients {
    pub(super) async fn open(
        factory: ClientFactory,
        options: RocketMqOptions,
        listener: Arc<WakeListener>,
    ) -> Result<Self, Error> {
        let producer = producer::start(&factory, &options).await?;
        Ok(Self {
            factory,
            options,
            listener,
            producer: RwLock::new(Arc::new(producer)),
            consumer: Mutex::new(Consumer::NotStarted),
        })
    }

    /// Returns the producer in use.
    pub(super) fn producer(&self) -> Arc<DefaultMQProducer> {
        self.producer
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Starts the consumer unless it is started.
    pub(super) async fn consume(&self) -> Result<(), Error> {
        let mut consumer = self.consumer.lock().await;
        match *consumer {
            Consumer::Started(_) => Ok(()),
            Consumer::Closed => Err(closed()),
            Consumer::NotStarted => {
                *consumer = Consumer::Started(Box::new(self.fresh_consumer().await?));
                Ok(())
            }
        }
    }

    /// Checks whether the producer in use reaches the master of `queue`: asks it for the end of the queue, which every
    /// account that may send may ask.
    pub(super) async fn probe(&self, queue: &MessageQueue) -> Result<(), Error> {
        probe(&self.producer(), queue, ANSWER_WITHIN).await
    }

    /// Uses a fresh producer, and consumer, from now on, if the fresh one reaches the master of `queue`.
    ///
    /// After five failed connections to a broker the client tries no other for 30 s, though the broker is back, and a
    /// restarted broker gives nothing to a consumer until its next heartbeat.
    pub(super) async fn reconnect(&self, queue: &MessageQueue) -> Result<(), Error> {
        let mut fresh = producer::start(&self.factory, &self.options).await?;
        if let Err(error) = probe(&fresh, queue, FIRST_ANSWER_WITHIN).await {
            fresh.shutdown().await;
            return Err(error);
        }
        let mut consumer = self.consumer.lock().await;
        if matches!(*consumer, Consumer::Closed) {
            fresh.shutdown().await;
            return Err(closed());
        }
        let fresh = Arc::new(fresh);
        let old = {
            let mut slot = self.producer.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *slot, fresh)
        };
        DefaultMQProducer::clone(&old).shutdown().await;
        if let Consumer::Started(old) = &mut *consumer {
            let mut old = std::mem::replace(&mut **old, self.fresh_consumer().await?);
            old.shutdown().await;
        }
        Ok(())
    }

    async fn fresh_consumer(&self) -> Result<DefaultMQPushConsumer, Error> {
        let consumption = Consumption {
            group: &self.options.group,
            topics: std::slice::from_ref(&self.options.topic),
            listeners: LISTENERS,
        };
        start_consumer(&self.factory, consumption, self.listener.clone()).await
    }

    /// Ends both, once.
    pub(super) async fn close(&self) {
        let mut consumer = self.consumer.lock().await;
        match std::mem::replace(&mut *consumer, Consumer::Closed) {
            Consumer::Closed => return,
            Consumer::NotStarted => {}
            Consumer::Started(mut consumer) => consumer.shutdown().await,
        }
        DefaultMQProducer::clone(&self.producer()).shutdown().await;
    }
}

async fn probe(producer: &DefaultMQProducer, queue: &MessageQueue, limit: Duration) -> Result<(), Error> {
    let mut producer = producer.clone();
    match timeout(limit, producer.max_offset(queue)).await {
        Ok(Ok(_)) => Ok(()),
        // In ACL 2.0 not every account that may send may ask.
        Ok(Err(cause)) if is_refusal(&cause) => Ok(()),
        Ok(Err(cause)) => Err(failure("asking a broker for the topic", cause)),
        Err(_) => Err(transient("a broker did not answer in time")),
    }
}
