//! Holds the connection of a backend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::clients::Clients;
use super::delay_mode::DelayMode;
use super::first_check;
use super::health_check::HealthCheck;
use super::masters::Masters;
use super::producer;
use super::wake_listener::WakeListener;
use crate::backend::{Arrival, Departure, SendError};
use crate::rocketmq::{
    Client, ClientFactory, Delivered, DeliveryQueue, Hidden, RocketMqOptions, joined, transient,
};
use crate::{Error, defaults};

/// After how long a batch is answered even without an acknowledgement: the sweep finds what is left.
const ANSWER_AFTER: Duration = Duration::from_secs(10);

/// How long after a failure the consumer is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// A connection to the brokers of one set of nameservers.
pub(super) struct BrokerConnection {
    client: Client,
    clients: Arc<Clients>,
    pub(super) masters: Arc<Masters>,
    checks: Arc<HealthCheck>,
    /// Until closed.
    checking: Mutex<Option<JoinHandle<()>>>,
    pub(super) listener: Arc<WakeListener>,
    /// Whether the consumer is known to have been started.
    consuming: AtomicBool,
}

impl BrokerConnection {
    pub(super) async fn open(options: RocketMqOptions, mode: DelayMode) -> Result<Self, Error> {
        let listener = Arc::new(WakeListener::new(DeliveryQueue::new(ANSWER_AFTER)));
        let for_clients = listener.clone();
        let opening = async move |factory: ClientFactory, options: RocketMqOptions| {
            let masters = Arc::new(first_check::open(&factory, &options, &mode).await?);
            let clients = Arc::new(Clients::open(factory.clone(), options.clone(), for_clients).await?);
            let checks = HealthCheck::new(factory, &options, mode, masters.clone(), clients.clone());
            // So that the first wake-ups need not wait for connections. If something is wrong, sends will fail.
            let _reached = checks.probe_any().await;
            Ok((masters, clients, Arc::new(checks)))
        };
        let (client, (masters, clients, checks)) = Client::open(options, opening).await?;
        let checking = client.spawn({
            let checks = checks.clone();
            async move { checks.keep_checking().await }
        });
        Ok(Self {
            client,
            clients,
            masters,
            checks,
            checking: Mutex::new(Some(checking)),
            listener,
            consuming: AtomicBool::new(false),
        })
    }

    pub(super) fn send<'a>(&'a self, batch: &'a [Departure]) -> Hidden<'a, Result<(), SendError>> {
        let (producer, masters) = (self.clients.producer(), self.masters.clone());
        let level_samples = self.listener.level_samples.clone();
        let sending = producer::send(producer, masters, level_samples, batch.to_vec());
        Box::pin(async move {
            let sent = self.client.run(sending).await;
            sent.unwrap_or_else(|cause| Err(SendError::all(batch.len(), cause)))
        })
    }

    pub(super) fn receive(&self, max: usize) -> Hidden<'_, Result<Vec<Arrival>, Error>> {
        Box::pin(async move {
            while let Err(error) = self.consume().await {
                if !error.is_transient() {
                    return Err(error);
                }
                tracing::warn!(
                    %error,
                    "the RocketMQ consumer cannot start, so no wake-ups arrive from brokers and each task waits for the \
                     sweep, half a second or more; it is tried again every second: see that the nameservers and brokers \
                     are up"
                );
                sleep(RESTART_AFTER).await;
            }
            let taken = self.listener.delivery_queue.take(max).await?;
            let arrival = |Delivered { item: wake, ticket }| Arrival { wake, ticket };
            Ok(taken.into_iter().map(arrival).collect())
        })
    }

    pub(super) fn health(&self) -> Hidden<'_, Result<(), Error>> {
        let (masters, checks) = (self.masters.clone(), self.checks.clone());
        Box::pin(async move {
            let asking = self.client.spawn(async move {
                if !masters.routes().has_any() {
                    checks.check().await;
                }
                checks.probe_any().await
            });
            match timeout(defaults::SEND_TIMEOUT, joined(asking)).await {
                Ok(answer) => answer.flatten(),
                Err(_) => Err(transient("no broker answered in time")),
            }
        })
    }

    /// Starts the consumer, unless it is started.
    async fn consume(&self) -> Result<(), Error> {
        if !self.consuming.load(Ordering::Acquire) {
            let clients = self.clients.clone();
            // To its end even if the caller goes away.
            joined(self.client.spawn(async move { clients.consume().await })).await??;
            self.consuming.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Ends the health checks, the producer and the consumer, and then the client.
    pub(super) fn close(&self) -> Hidden<'_, ()> {
        Box::pin(async move {
            self.listener.delivery_queue.close();
            let checking = self
                .checking
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(checking) = checking {
                let (checks, clients) = (self.checks.clone(), self.clients.clone());
                let closing = self.client.spawn(async move {
                    checks.close().await;
                    // Clients that are half started cannot be closed.
                    let _ended = checking.await;
                    clients.close().await;
                });
                // An error says that the runtime has ended.
                let _ended = joined(closing).await;
            }
            // Only now: a batch that was answered earlier would count as consumed.
            self.listener.delivery_queue.release();
            self.client.close().await;
        })
    }
}
