//! Messages that others send to topics of ours.

mod queue_order;
mod watch;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rocketmq_client_rust::DefaultMQPushConsumer;
use rocketmq_model::common::message::message_ext::MessageExt;
use tokio::task::JoinHandle;

use self::queue_order::{Patience, QueueOrder};
use self::watch::Watch;
use super::{
    Admin, Client, ClientFactory, Consumption, Delivered, DeliveryQueue, Listener, Received, RocketMqOptions,
    closed, joined, start_consumer,
};
use crate::{Error, defaults};

/// For how long messages are held for who received them: less than the client allows a listener. What is not acknowledged
/// by then comes again.
const HOLD: Duration = Duration::from_secs(540);
/// How many batches may be with who receives them at once: some hundred messages, as many as go well into one call of a
/// store.
const BATCHES: usize = 16;

/// Receives the messages of topics, and holds each until it is acknowledged.
///
/// The processes of one consumer group share the messages. Those of one queue come in the order in which their broker
/// stored them. A message that is not acknowledged comes again: at once to another process of the group where this one
/// ends, else after nine minutes.
pub struct Inbox(
    /// Its type hidden: see `RocketMqBackend`.
    Arc<dyn Receives>,
);

type Answered<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

trait Receives: Send + Sync {
    fn receive(&self, max: usize) -> Answered<'_, Result<Vec<Received>, Error>>;

    fn acknowledge(&self, messages: &[Received]);

    fn close(&self) -> Answered<'_, ()>;
}

impl Inbox {
    /// Connects to the nameservers and starts to receive what is sent to `topics`, which are made on every master that lacks
    /// them. The options' group is who receives; their topic, and those for wake-ups, are no matter.
    pub async fn connect(
        options: impl Into<RocketMqOptions>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, Error> {
        let topics = topics.into_iter().map(Into::into).collect();
        Self::open(options.into(), topics).await
    }

    /// Apart from `connect`, which is compiled where it is called.
    fn open(options: RocketMqOptions, topics: Vec<String>) -> Answered<'static, Result<Self, Error>> {
        Box::pin(async move {
            let Some(first) = topics.first() else {
                return Err(Error::invalid("topics", "empty", "allowed is one topic or more"));
            };
            for topic in &topics {
                super::options::check_topic(topic)?;
            }
            let listener = Arc::new(InboxListener {
                delivery_queue: DeliveryQueue::new(HOLD),
                order: QueueOrder::new(Patience::default()),
            });
            let options = options.topic(first);
            let opening = {
                let listener = listener.clone();
                async move |factory, options| Consumer::open(factory, options, topics, listener).await
            };
            let (client, consumer) = Client::open(options, opening).await?;
            let watching = client.spawn({
                let consumer = consumer.clone();
                async move { consumer.keep_up().await }
            });
            Ok(Self(Arc::new(Connected {
                client,
                consumer,
                listener,
                watching: Mutex::new(Some(watching)),
            })))
        })
    }

    /// Waits for messages and takes up to `max`. An error only when this is closed.
    pub async fn receive(&self, max: usize) -> Result<Vec<Received>, Error> {
        self.0.receive(max).await
    }

    /// These messages have been dealt with, and do not come again unless this process ends within seconds.
    pub fn acknowledge(&self, messages: &[Received]) {
        self.0.acknowledge(messages);
    }

    /// Ends receiving. What has been received and not been acknowledged is left to others of the group.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

struct Connected {
    client: Client,
    consumer: Arc<Consumer>,
    listener: Arc<InboxListener>,
    /// Until closed.
    watching: Mutex<Option<JoinHandle<()>>>,
}

impl Receives for Connected {
    fn receive(&self, max: usize) -> Answered<'_, Result<Vec<Received>, Error>> {
        Box::pin(async move {
            let taken = self.listener.delivery_queue.take(max).await?;
            let received = |Delivered { item, ticket }| Received { ticket, ..item };
            Ok(taken.into_iter().map(received).collect())
        })
    }

    fn acknowledge(&self, messages: &[Received]) {
        let tickets = messages.iter().map(|message| message.ticket);
        self.listener.delivery_queue.acknowledge(tickets);
    }

    fn close(&self) -> Answered<'_, ()> {
        Box::pin(async {
            self.listener.delivery_queue.close();
            let watching = self
                .watching
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let Some(watching) = watching else { return };
            watching.abort();
            let consumer = self.consumer.clone();
            let closing = self.client.spawn(async move {
                // What is half started cannot be closed.
                let _ended = watching.await;
                consumer.close().await;
            });
            // An error says that the runtime has ended.
            let _ended = joined(closing).await;
            // Only now: a batch that was answered earlier would count as consumed.
            self.listener.delivery_queue.release();
            self.client.close().await;
        })
    }
}

struct InboxListener {
    delivery_queue: DeliveryQueue<Received>,
    order: QueueOrder,
}

impl Listener for InboxListener {
    fn listen(&self, messages: &[&MessageExt]) -> bool {
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return true;
        };
        let received = |message: &&MessageExt| Received::of_client(message, defaults::PAYLOAD_LIMIT);
        let batch = messages.iter().map(received).collect();
        let queue = (
            first.topic().to_string(),
            first.broker_name().to_owned(),
            first.queue_id(),
        );
        let (from, to) = (first.queue_offset(), last.queue_offset());
        let held = self
            .order
            .in_turn(queue, from, to, || self.delivery_queue.hand_over(batch));
        held.is_some_and(|held| self.delivery_queue.hold(held))
    }
}

/// The consumer in use.
struct Consumer {
    factory: ClientFactory,
    group: String,
    topics: Vec<String>,
    listener: Arc<InboxListener>,
    /// None: closed.
    in_use: tokio::sync::Mutex<Option<DefaultMQPushConsumer>>,
}

impl Consumer {
    /// Makes the topics, and starts to consume them.
    async fn open(
        factory: ClientFactory,
        options: RocketMqOptions,
        topics: Vec<String>,
        listener: Arc<InboxListener>,
    ) -> Result<Arc<Self>, Error> {
        let admin = Admin::open(&factory).await?;
        let made = async {
            let masters = admin.masters().await?;
            for topic in &topics {
                admin.ensure(&masters, topic, &options.group).await?;
            }
            Ok(())
        };
        let made: Result<(), Error> = made.await;
        admin.close().await;
        match made {
            Err(error) if error.is_transient() && options.lazy => {
                tracing::warn!(
                    %error,
                    "no broker answers, so nothing is received yet; messages come as soon as one does: see that the \
                     nameservers and brokers are up"
                );
            }
            made => made?,
        }
        let consumer = Self {
            group: options.group,
            topics,
            listener,
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
        start_consumer(&self.factory, consumption, self.listener.clone()).await
    }

    /// Starts the consumer anew whenever a broker has come back. Never ends.
    ///
    /// For after five failed connections to a broker the client tries no other for 30 s, though it has long come back, and
    /// a restarted broker gives nothing to a consumer until it next sends its heartbeat.
    async fn keep_up(&self) {
        let mut watch = Watch::new(self.factory.clone(), self.topics.clone());
        loop {
            watch.until_a_broker_comes_back().await;
            if let Err(error) = self.renew().await {
                tracing::debug!(%error, "the consumer cannot be started anew; the one there is goes on");
            }
        }
    }

    async fn renew(&self) -> Result<(), Error> {
        let fresh = self.fresh().await?;
        let mut in_use = self.in_use.lock().await;
        let Some(mut old) = in_use.replace(fresh) else {
            if let Some(mut fresh) = in_use.take() {
                fresh.shutdown().await;
            }
            return Err(closed());
        };
        drop(in_use);
        old.shutdown().await;
        Ok(())
    }

    async fn close(&self) {
        if let Some(mut consumer) = self.in_use.lock().await.take() {
            consumer.shutdown().await;
        }
    }
}
