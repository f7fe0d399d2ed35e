//! What a backend is connected with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::clients::Clients;
use super::delay_mode::DelayMode;
use super::first_check;
use super::health_check::HealthCheck;
use super::masters::Masters;
use super::wake_listener::WakeListener;
use crate::Error;
use crate::rocketmq::{Client, ClientFactory, DeliveryQueue, RocketMqOptions, joined};

/// After how long a batch is answered for, whatever has become of it: the sweep finds what is left.
const ANSWER_AFTER: Duration = Duration::from_secs(10);

/// A connection to the brokers of one set of nameservers.
pub(super) struct BrokerConnection {
    pub(super) client: Client,
    pub(super) clients: Arc<Clients>,
    pub(super) masters: Arc<Masters>,
    pub(super) checks: Arc<HealthCheck>,
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
            // So that the first wake-ups need not wait for connections. What is wrong, sends will tell.
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

    /// Starts the consumer, unless it is started.
    pub(super) async fn consume(&self) -> Result<(), Error> {
        if !self.consuming.load(Ordering::Acquire) {
            let clients = self.clients.clone();
            // To its end even if the caller goes away.
            joined(self.client.spawn(async move { clients.consume().await })).await??;
            self.consuming.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Ends the health checks, the producer and the consumer, and then the client.
    pub(super) async fn close(&self) {
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
    }
}
