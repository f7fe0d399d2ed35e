//! The consumer of an inbox: started when its topics are there, and anew when a broker has come back.

use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::DefaultMQPushConsumer;
use tokio::time::{sleep, timeout};

use super::watch::Watch;
use super::{BATCHES, Intake};
use crate::Error;
use crate::rocketmq::{Admin, ClientFactory, Consumption, RocketMqOptions, start_consumer, transient};

/// How often creating the topics is tried again where no broker could be asked at the start, and starting the consumer.
const AGAIN: Duration = Duration::from_secs(2);
/// It is tried less and less often, down to this.
const AGAIN_AT_MOST: Duration = Duration::from_secs(10);
/// How long nameservers and brokers may take for it: less than opening may take in all.
const MAKE_WITHIN: Duration = Duration::from_secs(12);

/// The consumer in use.
pub(super) struct Consumer {
    factory: ClientFactory,
    group: String,
    topics: Vec<String>,
    intake: Arc<Intake>,
    /// Whether the topics exist, as far as any broker could be asked at the start.
    are_made: bool,
    /// None: closed, or about to be started.
    in_use: tokio::sync::Mutex<Option<DefaultMQPushConsumer>>,
}

impl Consumer {
    /// Creates the topics, and starts to consume them.
    pub(super) async fn open(
        factory: ClientFactory,
        options: RocketMqOptions,
        topics: Vec<String>,
        intake: Arc<Intake>,
    ) -> Result<Arc<Self>, Error> {
        let _only_once = intake.factory.set(factory.clone());
        let made = make(&factory, &topics, &options.group).await;
        let are_made = made.is_ok();
        match made {
            Err(error) if error.is_transient() && options.lazy => {
                tracing::warn!(
                    %error,
                    "no broker can be reached, so nothing is received yet; messages come soon after one can: see that the \
                     nameservers and brokers are up"
                );
            }
            made => made?,
        }
        let consumer = Self {
            group: options.group,
            topics,
            intake,
            are_made,
            in_use: tokio::sync::Mutex::new(None),
            factory,
        };
        *consumer.in_use.lock().await = Some(consumer.fresh().await?);
        Ok(Arc::new(consumer))
    }

    async fn fresh(&self) -> Result<DefaultMQPushConsumer, Error> {
        let consumption = Consumption {
            group: &self.group,
            topics: &self.topics,
            listeners: BATCHES,
        };
        start_consumer(&self.factory, consumption, self.intake.next_listener()).await
    }

    /// Replaces the consumer whenever a broker has come back. Never ends.
    ///
    /// After five failed connections to a broker the client tries no other for 30 s, though the broker is back, and a
    /// restarted broker gives nothing to a consumer until its next heartbeat.
    pub(super) async fn keep_up(&self) {
        if !self.are_made {
            self.make_topics().await;
        }
        let mut watch = Watch::new(self.factory.clone(), self.topics.clone());
        loop {
            watch.until_a_broker_comes_back().await;
            self.renew().await;
        }
    }

    /// Creates the topics as soon as a broker can be asked, and has them consumed: a consumer that started earlier
    /// learns of them only when it next reads routes.
    async fn make_topics(&self) {
        let mut pause = AGAIN;
        loop {
            sleep(pause).await;
            pause = (2 * pause).min(AGAIN_AT_MOST);
            match make(&self.factory, &self.topics, &self.group).await {
                Ok(()) => break,
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "the topics to be received cannot be made yet");
                }
                Err(error) => {
                    tracing::warn!(
                        topics = ?self.topics, %error,
                        "the brokers lack topics that are to be received: create them, or let the account do so"
                    );
                }
            }
        }
        tracing::info!(topics = ?self.topics, "brokers answer, and messages are received from now on");
        self.renew().await;
    }

    /// Ends the consumer, and only then starts a fresh one: with both there, messages that are behind in a queue could
    /// come by one before those ahead come by the other.
    async fn renew(&self) {
        self.close().await;
        loop {
            match self.fresh().await {
                Ok(fresh) => break *self.in_use.lock().await = Some(fresh),
                Err(error) => {
                    tracing::debug!(%error, "the consumer cannot be restarted yet; it is tried again");
                }
            }
            sleep(AGAIN).await;
        }
    }

    pub(super) async fn close(&self) {
        let mut in_use = self.in_use.lock().await;
        if let Some(consumer) = &mut *in_use {
            // It stays there until it has ended, so that it is ended again if this is abandoned.
            consumer.shutdown().await;
        }
        *in_use = None;
    }
}

/// Creates the topics on the masters that lack them, and the group.
async fn make(factory: &ClientFactory, topics: &[String], group: &str) -> Result<(), Error> {
    let admin = Admin::open(factory).await?;
    let made = async {
        let masters = admin.masters().await?;
        for topic in topics {
            admin.ensure(&masters, topic, group).await?;
        }
        Ok(())
    };
    let made = timeout(MAKE_WITHIN, made).await;
    admin.close().await;
    made.unwrap_or_else(|_| Err(transient("nameservers and brokers do not answer")))
}
