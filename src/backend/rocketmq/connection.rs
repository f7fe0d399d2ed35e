//! The backend itself, with the client's types in it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::handover::Handover;
use super::lines::Lines;
use super::lookout::Lookout;
use super::masters::Masters;
use super::producer;
use super::wanted::Wanted;
use crate::backend::{Arrival, Backend, Delays, Departure, SendError};
use crate::rocketmq::{Base, Client, NAME, RocketMqOptions, joined, transient};
use crate::{Error, Wake, defaults};

/// After how long a batch is answered for, whatever has become of it: the sweep finds what is left.
const ANSWER_AFTER: Duration = Duration::from_secs(10);
/// How long after a failure the consumer is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// A connection to the brokers of one set of nameservers.
pub(super) struct Connection {
    client: Client,
    lines: Arc<Lines>,
    masters: Arc<Masters>,
    lookout: Arc<Lookout>,
    /// Until closed.
    looking: Mutex<Option<JoinHandle<()>>>,
    handover: Arc<Handover>,
    /// Whether the consumer is known to have been started.
    consuming: AtomicBool,
}

impl Connection {
    pub(super) async fn open(options: RocketMqOptions, wanted: Wanted) -> Result<Self, Error> {
        let handover = Arc::new(Handover::new(ANSWER_AFTER));
        let for_lines = handover.clone();
        let opening = async move |base: Base, options: RocketMqOptions| {
            let masters = Arc::new(Lookout::open(&base, &options, &wanted).await?);
            let lines = Arc::new(Lines::open(base.clone(), options.clone(), for_lines).await?);
            let lookout = Lookout::new(base, &options, wanted, masters.clone(), lines.clone());
            // So that the first wake-ups need not wait for connections. What is wrong, sends will tell.
            let _reached = lookout.reach_one().await;
            Ok((masters, lines, Arc::new(lookout)))
        };
        let (client, (masters, lines, lookout)) = Client::open(options, opening).await?;
        let looking = client.spawn({
            let lookout = lookout.clone();
            async move { lookout.keep_looking().await }
        });
        Ok(Self {
            client,
            lines,
            masters,
            lookout,
            looking: Mutex::new(Some(looking)),
            handover,
            consuming: AtomicBool::new(false),
        })
    }

    /// Where wake-ups wait for their receiver.
    pub(super) fn handover(&self) -> Arc<Handover> {
        self.handover.clone()
    }

    async fn consume(&self) -> Result<(), Error> {
        if !self.consuming.load(Ordering::Acquire) {
            let lines = self.lines.clone();
            // To its end even if the caller goes away.
            joined(self.client.spawn(async move { lines.consume().await })).await??;
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
        self.masters.offers().delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let sending = producer::send(self.lines.producer(), self.masters.clone(), batch.to_vec());
        let mut failed = match self.client.run(sending).await {
            Ok(failed) => failed,
            Err(cause) => return Err(SendError::all(batch.len(), cause)),
        };
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
        let (masters, lookout) = (self.masters.clone(), self.lookout.clone());
        let asking = self.client.spawn(async move {
            if !masters.offers().any() {
                lookout.look().await;
            }
            lookout.reach_one().await
        });
        match timeout(defaults::SEND_TIMEOUT, joined(asking)).await {
            Ok(answer) => answer.flatten(),
            Err(_) => Err(transient("no broker answered in time")),
        }
    }

    async fn close(&self) -> Result<(), Error> {
        self.handover.close();
        let looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(looking) = looking {
            let (lookout, lines) = (self.lookout.clone(), self.lines.clone());
            let closing = self.client.spawn(async move {
                lookout.close().await;
                // What is half renewed cannot be closed.
                let _ended = looking.await;
                lines.close().await;
            });
            // An error says that the runtime has ended.
            let _ended = joined(closing).await;
        }
        // Only now: a batch that was answered earlier would count as consumed.
        self.handover.release();
        self.client.close().await;
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("delays", &self.masters.offers().delays())
            .finish_non_exhaustive()
    }
}
