//! The backend itself: a producer, a consumer once something is received, and what is between them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rocketmq_client_rust::{DefaultMQProducer, DefaultMQPushConsumer};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::client::{Client, joined};
use super::failure::{closed, transient};
use super::handover::Handover;
use super::options::RocketMqOptions;
use super::{NAME, broker, consumer, producer};
use crate::backend::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::{Error, LevelTable, Wake, defaults};

/// After how long a batch is answered for, whatever has become of it: the sweep finds what is left.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// How long after a failure the consumer is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// A connection to the brokers of one set of nameservers.
pub(super) struct Connection {
    client: Client,
    producer: Arc<DefaultMQProducer>,
    options: RocketMqOptions,
    levels: LevelTable,
    handover: Arc<Handover>,
    consumer: Arc<Mutex<Consumer>>,
    /// Whether the consumer is known to have been started.
    consuming: AtomicBool,
}

enum Consumer {
    NotStarted,
    Started(Box<DefaultMQPushConsumer>),
    Closed,
}

impl Connection {
    pub(super) async fn open(options: RocketMqOptions) -> Result<Self, Error> {
        options.check()?;
        let client = Client::start(&options.nameservers).await?;
        let started = timeout(CONNECT_WITHIN, async {
            let levels = broker::prepare(&client, &options).await?;
            Ok((levels, producer::start(&client, &options).await?))
        });
        let started = started
            .await
            .unwrap_or_else(|_| Err(transient("connecting took too long")));
        let (levels, producer) = match started {
            Ok(started) => started,
            Err(error) => {
                client.close().await;
                return Err(error);
            }
        };
        Ok(Self {
            client,
            producer: Arc::new(producer),
            options,
            levels,
            handover: Arc::new(Handover::new(PATIENCE)),
            consumer: Arc::new(Mutex::new(Consumer::NotStarted)),
            consuming: AtomicBool::new(false),
        })
    }

    /// Where wake-ups wait for their receiver.
    pub(super) fn handover(&self) -> Arc<Handover> {
        self.handover.clone()
    }

    /// Starts the consumer unless it is started.
    async fn consume(&self) -> Result<(), Error> {
        if self.consuming.load(Ordering::Acquire) {
            return Ok(());
        }
        let slot = self.consumer.clone();
        let fresh = consumer::consumer(&self.client, &self.options, self.handover.clone());
        let topic = self.options.topic.clone();
        // To its end even if the caller goes away: one that is half started cannot be taken back.
        let starting = self.client.spawn(async move {
            let mut slot = slot.lock().await;
            match *slot {
                Consumer::Started(_) => Ok(()),
                Consumer::Closed => Err(closed()),
                Consumer::NotStarted => {
                    *slot = Consumer::Started(Box::new(consumer::start(fresh, &topic).await?));
                    Ok(())
                }
            }
        });
        joined(starting).await??;
        self.consuming.store(true, Ordering::Release);
        Ok(())
    }
}

#[async_trait]
impl Backend for Connection {
    fn name(&self) -> &'static str {
        NAME
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Levels(self.levels.clone()),
            usual_lateness: defaults::LEVELS_LATENESS,
        }
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let mut failed = BTreeMap::new();
        let mut messages = Vec::with_capacity(batch.len());
        for (place, departure) in batch.iter().enumerate() {
            match producer::message(departure, &self.options.topic, &self.levels) {
                Ok(message) => messages.push((place, message)),
                Err(cause) => {
                    failed.insert(place, cause);
                }
            }
        }
        match self
            .client
            .run(producer::send(self.producer.clone(), messages))
            .await
        {
            Ok(unconfirmed) => failed.extend(unconfirmed),
            Err(cause) => return Err(SendError::all(batch.len(), cause)),
        }
        let places = failed.keys().copied().collect();
        match failed.pop_first() {
            None => Ok(()),
            Some((_, cause)) => Err(SendError {
                failed: places,
                cause,
            }),
        }
    }

    /// Does nothing: a broker does not give a delayed message back.
    async fn remove(&self, _: &[Wake]) -> Result<(), Error> {
        Ok(())
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        while let Err(error) = self.consume().await {
            if !error.is_transient() {
                return Err(error);
            }
            tracing::warn!(%error, "the consumer has not started; it is tried again");
            sleep(RESTART_AFTER).await;
        }
        self.handover.take(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.handover.acknowledge(&arrivals);
    }

    async fn health(&self) -> Result<(), Error> {
        let producer = DefaultMQProducer::clone(&self.producer);
        let topic = self.options.topic.clone();
        let probe = self
            .client
            .run(async move { broker::probe(producer, &topic).await });
        timeout(defaults::SEND_TIMEOUT, probe)
            .await
            .unwrap_or_else(|_| Err(transient("no broker answered in time")))?
    }

    /// What has been received and not been acknowledged is left to other workers of the group.
    async fn close(&self) -> Result<(), Error> {
        self.handover.close();
        let slot = self.consumer.clone();
        let mut producer = DefaultMQProducer::clone(&self.producer);
        let handover = self.handover.clone();
        // To its end even if the caller goes away.
        let closing = self.client.spawn(async move {
            let mut slot = slot.lock().await;
            match std::mem::replace(&mut *slot, Consumer::Closed) {
                Consumer::Closed => return,
                Consumer::NotStarted => {}
                Consumer::Started(mut consumer) => consumer.shutdown().await,
            }
            // Only now: a batch answered earlier would count as consumed.
            handover.release();
            producer.shutdown().await;
        });
        // Cancelled only if the runtime has ended, by an earlier close.
        let _ = closing.await;
        self.client.close().await;
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Otherwise threads that the client cannot end would wait on.
        self.handover.release();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("options", &self.options)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}
