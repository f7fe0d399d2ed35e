//! The backend itself, with the client's types in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{sleep, timeout};

use super::handover::Handover;
use super::lines::Lines;
use super::{masters, producer};
use crate::backend::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::rocketmq::{Client, NAME, RocketMqOptions, joined, transient};
use crate::{Error, LevelTable, Wake, defaults};

/// After how long a batch is answered for, whatever has become of it: the sweep finds what is left.
const ANSWER_AFTER: Duration = Duration::from_secs(10);
/// For how long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// How long after a failure the consumer is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// A connection to the brokers of one set of nameservers.
pub(super) struct Connection {
    client: Client,
    lines: Arc<Lines>,
    handover: Arc<Handover>,
    topic: String,
    levels: LevelTable,
    /// Whether the consumer is known to have been started.
    consuming: AtomicBool,
}

impl Connection {
    pub(super) async fn open(options: RocketMqOptions) -> Result<Self, Error> {
        options.check()?;
        let topic = options.topic.clone();
        let handover = Arc::new(Handover::new(ANSWER_AFTER));
        let client = Client::start(&options).await?;
        let (base, for_lines) = (client.base(), handover.clone());
        let opening = client.run(async move {
            let levels = masters::prepare(&base, &options).await?;
            Ok((levels, Lines::open(base, options, for_lines).await?))
        });
        let opened = match timeout(CONNECT_WITHIN, opening).await {
            Ok(opened) => opened.flatten(),
            Err(_) => Err(transient(format!("not connected within {CONNECT_WITHIN:?}"))),
        };
        match opened {
            Ok((levels, lines)) => Ok(Self {
                client,
                lines: Arc::new(lines),
                handover,
                topic,
                levels,
                consuming: AtomicBool::new(false),
            }),
            Err(error) => {
                client.close().await;
                Err(error)
            }
        }
    }

    /// Where wake-ups wait for their receiver.
    pub(super) fn handover(&self) -> Arc<Handover> {
        self.handover.clone()
    }

    /// Does something with the lines, to its end even if the caller goes away.
    async fn with_lines<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        act: impl FnOnce(Arc<Lines>) -> F,
    ) -> Result<T, Error> {
        joined(self.client.spawn(act(self.lines.clone()))).await
    }

    async fn consume(&self) -> Result<(), Error> {
        if !self.consuming.load(Ordering::Acquire) {
            self.with_lines(|lines| async move { lines.consume().await })
                .await??;
            self.consuming.store(true, Ordering::Release);
        }
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
            match producer::message(departure, &self.topic, &self.levels) {
                Ok(message) => messages.push((place, message)),
                Err(cause) => {
                    failed.insert(place, cause);
                }
            }
        }
        match self
            .client
            .run(producer::send(self.lines.producer(), messages))
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
        let asking = self.with_lines(|lines| async move { lines.ask().await });
        match timeout(defaults::SEND_TIMEOUT, asking).await {
            Ok(answer) => answer.flatten(),
            Err(_) => Err(transient("no broker answered in time")),
        }
    }

    async fn close(&self) -> Result<(), Error> {
        self.handover.close();
        // An error says that the runtime has ended, by an earlier close.
        let _ended = self.with_lines(|lines| async move { lines.close().await }).await;
        // Only now: a batch that was answered earlier would count as consumed.
        self.handover.release();
        self.client.close().await;
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("topic", &self.topic)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}
