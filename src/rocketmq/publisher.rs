//! Publishes to the services' own topics, and hides the client's types.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::{ClientResult, DefaultMQProducer, MessageQueueSelector, SelectMessageQueueByHash};
use rocketmq_model::common::message::message_accessor::MessageAccessor;
use rocketmq_model::common::message::message_single::Message as ClientMessage;
use rocketmq_model::message::MessageQueue;
use rocketmq_model::result::{SendResult, SendStatus};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::absence::Absence;
use super::{
    Admin, Client, ClientFactory, Hidden, Message, PublishError, RocketMqOptions, answer, closed, joined,
    transient,
};
use crate::Error;
use crate::observe::metrics::{Stopwatch, sent_to_broker};

/// How long a send may take.
const SEND_WITHIN: Duration = Duration::from_secs(3);
/// How long nameservers may take to say whether they know a topic.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How often a producer is replaced at the most because a broker did not answer it.
const RENEW_EVERY: Duration = Duration::from_secs(3);

/// Publishes messages to the services' own topics.
///
/// A message is published when a broker has confirmed it. A message that the broker has not flushed, or copied to its
/// replica, in its own time (`FLUSH_DISK_TIMEOUT`, `FLUSH_SLAVE_TIMEOUT`) counts as failed, as a crash may lose it. A
/// broker that has no replica to copy to (`SLAVE_NOT_AVAILABLE`) has the message itself, and would say so of every
/// further copy: that counts as published.
///
/// A cheap handle: clone it.
#[derive(Clone)]
pub struct Publisher(
    /// Its type hidden: see `RocketMqBackend`.
    Arc<dyn Publishes>,
);

/// Takes messages to brokers.
trait Publishes: fmt::Debug + Send + Sync {
    /// How long a body may be.
    fn longest_body(&self) -> usize;

    fn publish(&self, message: Message) -> Hidden<'_, Result<(), PublishError>>;

    fn topic_exists(&self, topic: String) -> Hidden<'_, Result<bool, Error>>;

    fn close(&self) -> Hidden<'_, ()>;
}

impl Publisher {
    /// Connects to the nameservers. Options for wake-ups are ignored.
    pub async fn connect(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        let (publisher, _) = Self::open(options.into(), None).await?;
        Ok(publisher)
    }

    /// Separate from `connect`, which is compiled where it is called. Fails if no broker has the topic. Says whether
    /// one has it, which is not known where the nameservers are away and the options are lazy.
    pub(crate) fn open(
        options: RocketMqOptions,
        topic: Option<String>,
    ) -> Hidden<'static, Result<(Self, bool), Error>> {
        Box::pin(async {
            let longest_body = options.max_message_size;
            let opening = |factory, options| CurrentProducer::open(factory, options, topic);
            let (client, (producer, saw_topic)) = Client::open(options, opening).await?;
            let publisher = Self(Arc::new(Connected {
                longest_body,
                client,
                producer: Arc::new(producer),
            }));
            Ok((publisher, saw_topic))
        })
    }

    /// Makes a publisher that takes everything and publishes nothing.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        #[derive(Debug)]
        struct Nowhere;

        impl Publishes for Nowhere {
            fn longest_body(&self) -> usize {
                super::message::LONGEST_BODY
            }

            fn topic_exists(&self, _: String) -> Hidden<'_, Result<bool, Error>> {
                Box::pin(async { Ok(true) })
            }

            fn publish(&self, _: Message) -> Hidden<'_, Result<(), PublishError>> {
                Box::pin(async { Ok(()) })
            }

            fn close(&self) -> Hidden<'_, ()> {
                Box::pin(async {})
            }
        }

        Self(Arc::new(Nowhere))
    }

    /// Refuses a message that no broker takes: better now than when it is to be published later.
    pub fn check(&self, message: &Message) -> Result<(), Error> {
        message.check(self.longest_body())
    }

    /// Returns how many bytes a body may have: [`RocketMqOptions::max_message_size`].
    pub fn longest_body(&self) -> usize {
        self.0.longest_body()
    }

    /// Says whether any broker has the topic, by the nameservers.
    pub async fn topic_exists(&self, topic: impl Into<String>) -> Result<bool, Error> {
        self.0.topic_exists(topic.into()).await
    }

    /// Publishes a message. If this fails, it may have been published all the same.
    pub async fn publish(&self, message: Message) -> Result<(), PublishError> {
        self.check(&message)
            .map_err(|error| PublishError::Rejected(error.to_string()))?;
        self.0.publish(message).await
    }

    /// Closes the connection, for all clones; publishing fails afterwards. Without this call, it closes with the last
    /// clone.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct Connected {
    longest_body: usize,
    client: Client,
    producer: Arc<CurrentProducer>,
}

/// The producer in use.
struct CurrentProducer {
    factory: ClientFactory,
    group: String,
    in_use: Mutex<InUse>,
    absence: Absence,
}

struct InUse {
    /// None: closed.
    producer: Option<Arc<DefaultMQProducer>>,
    since: Instant,
    /// Whether a broker did not answer it.
    is_stale: bool,
}

impl Publishes for Connected {
    fn longest_body(&self) -> usize {
        self.longest_body
    }

    fn topic_exists(&self, topic: String) -> Hidden<'_, Result<bool, Error>> {
        let factory = self.client.factory();
        Box::pin(async move {
            // To its end even if the caller goes away: a client that only asks is closed there.
            let asking = self.client.spawn(async move { knows(&factory, &topic).await });
            joined(asking).await.flatten()
        })
    }

    fn publish(&self, message: Message) -> Hidden<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let queue_key = message.queue_key.clone();
            let message = client_message(message)?;
            let producer = self.producer.clone();
            // To its end even if the caller is stopped: a send that is half started cannot be taken back.
            let sending = self
                .client
                .spawn(async move { producer.publish(message, queue_key).await });
            joined(sending).await.map_err(PublishError::Failed)?
        })
    }

    fn close(&self) -> Hidden<'_, ()> {
        Box::pin(async {
            let producer = self.producer.clone();
            // An error says that the runtime has ended.
            let _ended = joined(self.client.spawn(async move { producer.close().await })).await;
            self.client.close().await;
        })
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

fn client_message(message: Message) -> Result<ClientMessage, PublishError> {
    let mut built = ClientMessage::builder().topic(message.topic).body(message.body);
    if !message.keys.is_empty() {
        built = built.keys(message.keys);
    }
    if let Some(tag) = message.tag {
        built = built.tags(tag);
    }
    let mut built = built
        .build()
        .map_err(|cause| PublishError::Rejected(format!("no message can be made of it: {cause}")))?;
    let marks = message.marks.into_iter();
    let marks = marks.map(|(name, value)| (name.to_owned(), value));
    for (name, value) in message.properties.into_iter().chain(marks) {
        let (name, value) = (
            CheetahString::from_string(name),
            CheetahString::from_string(value),
        );
        MessageAccessor::put_property(&mut built, name, value);
    }
    Ok(built)
}

impl CurrentProducer {
    /// Fails if no broker has the topic; says whether one has it.
    async fn open(
        factory: ClientFactory,
        options: RocketMqOptions,
        topic: Option<String>,
    ) -> Result<(Self, bool), Error> {
        let mut saw_topic = false;
        if let Some(topic) = topic {
            let known = match knows(&factory, &topic).await {
                Err(error) if error.is_transient() && options.lazy => None,
                known => Some(known?),
            };
            saw_topic = known == Some(true);
            if known == Some(false) {
                return Err(Error::invalid(
                    "topic",
                    topic,
                    "allowed is an existing topic: it is the service's own, so its operator creates it",
                ));
            }
        }
        let producer = factory.producer(&options.group, SEND_WITHIN).await?;
        let producer = Self {
            factory,
            group: options.group,
            in_use: Mutex::new(InUse {
                producer: Some(Arc::new(producer)),
                since: Instant::now(),
                is_stale: false,
            }),
            absence: Absence::default(),
        };
        Ok((producer, saw_topic))
    }

    async fn publish(&self, message: ClientMessage, queue_key: Option<String>) -> Result<(), PublishError> {
        let producer = self.producer().await.map_err(PublishError::Failed)?;
        let topic = message.topic().clone();
        let since = Stopwatch::now();
        let sending = async {
            match queue_key {
                Some(key) => producer.send_with_selector(message, by_hash, key).await,
                None => producer.send(message).await,
            }
        };
        // The client's own timeout is for the send alone; before that it may ask the nameservers.
        let Ok(outcome) = timeout(2 * SEND_WITHIN, sending).await else {
            self.mark_stale(&producer).await;
            let late = transient("publishing was not confirmed in time");
            sent_to_broker(since, Some(late.sort()));
            return Err(PublishError::Failed(late));
        };
        if let Err(cause) = &outcome
            && answer(cause).is_none()
        {
            self.mark_stale(&producer).await;
        }
        let published = match published(outcome) {
            Err(PublishError::Unreachable(error)) => {
                let explained = self.absence.explain(&topic, &self.factory, error).await;
                Err(PublishError::Unreachable(explained))
            }
            published => published,
        };
        sent_to_broker(since, published.as_ref().err().map(PublishError::sort));
        published
    }

    /// Returns the producer in use; a fresh one, if the last was not answered.
    ///
    /// After five failed connections to a broker the client tries no other for 30 s, though the broker is back.
    async fn producer(&self) -> Result<Arc<DefaultMQProducer>, Error> {
        let mut in_use = self.in_use.lock().await;
        let Some(producer) = in_use.producer.clone() else {
            return Err(closed());
        };
        if !in_use.is_stale || in_use.since.elapsed() < RENEW_EVERY {
            return Ok(producer);
        }
        let fresh = Arc::new(self.factory.producer(&self.group, SEND_WITHIN).await?);
        *in_use = InUse {
            producer: Some(fresh.clone()),
            since: Instant::now(),
            is_stale: false,
        };
        // Other sends of it that brokers are about to confirm are not cut off.
        tokio::spawn(Box::pin(async move {
            sleep(2 * SEND_WITHIN).await;
            DefaultMQProducer::clone(&producer).shutdown().await;
        }));
        Ok(fresh)
    }

    async fn mark_stale(&self, stale: &Arc<DefaultMQProducer>) {
        let mut in_use = self.in_use.lock().await;
        if in_use
            .producer
            .as_ref()
            .is_some_and(|producer| Arc::ptr_eq(producer, stale))
        {
            in_use.is_stale = true;
        }
    }

    async fn close(&self) {
        let producer = self.in_use.lock().await.producer.take();
        if let Some(producer) = producer {
            DefaultMQProducer::clone(&producer).shutdown().await;
        }
    }
}

/// Says whether the nameservers know a broker that has the topic. Nameservers that do not answer are not waited for
/// until opening itself has taken too long.
async fn knows(factory: &ClientFactory, topic: &str) -> Result<bool, Error> {
    let admin = Admin::open(factory).await?;
    let asked = timeout(ASK_WITHIN, admin.topic_exists(topic)).await;
    admin.close().await;
    asked.unwrap_or_else(|_| Err(transient("the nameservers do not answer")))
}

fn by_hash(queues: &[MessageQueue], message: &ClientMessage, key: &String) -> Option<MessageQueue> {
    SelectMessageQueueByHash.select(queues, message, key)
}

/// Checks that the message is published.
fn published(outcome: ClientResult<Option<SendResult>>) -> Result<(), PublishError> {
    match outcome {
        Ok(Some(result)) => stored(result.send_status),
        Ok(None) => Err(PublishError::Failed(transient("publishing had no outcome"))),
        Err(cause) => Err(PublishError::of(cause)),
    }
}

/// Checks that a message with this status outlives a crash of its broker, as far as trying again can change that.
fn stored(status: SendStatus) -> Result<(), PublishError> {
    match status {
        SendStatus::SendOk | SendStatus::SlaveNotAvailable => Ok(()),
        SendStatus::FlushDiskTimeout | SendStatus::FlushSlaveTimeout => Err(PublishError::Failed(transient(
            format!("the broker has the message and may lose it: {status}"),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_may_lose_is_tried_again_and_what_lacks_only_a_replica_is_not() {
        for (status, is_stored) in [
            (SendStatus::SendOk, true),
            (SendStatus::FlushDiskTimeout, false),
            (SendStatus::FlushSlaveTimeout, false),
            (SendStatus::SlaveNotAvailable, true),
        ] {
            let sent = SendResult {
                send_status: status,
                ..SendResult::default()
            };
            match published(Ok(Some(sent))) {
                Ok(()) => assert!(is_stored, "{status}"),
                Err(PublishError::Failed(_)) => assert!(!is_stored, "{status}"),
                Err(error) => panic!("{status}: {error}"),
            }
        }
        assert!(matches!(published(Ok(None)), Err(PublishError::Failed(_))));
    }

    #[test]
    fn the_queue_of_a_key_is_the_one_that_java_chooses() {
        let queues: Vec<_> = (0..8)
            .map(|number| MessageQueue::from_parts("t", "broker-a", number))
            .collect();
        let message = ClientMessage::builder().topic("t").body("x").build().unwrap();
        // The results of Java's `String.hashCode()`.
        for (key, hash) in [
            ("abc", 96_354_i64),
            ("polygenelubricants", i64::from(i32::MIN)),
            ("", 0),
            // In UTF-16 units: a surrogate pair is two.
            ("é", 0xE9),
            ("😀", 0xD83D * 31 + 0xDE00),
        ] {
            let queue = by_hash(&queues, &message, &key.to_owned()).unwrap();
            let place = i32::try_from((hash % 8).abs()).unwrap();
            assert_eq!(queue.queue_id(), place, "{key}");
        }
        assert_eq!(by_hash(&[], &message, &"abc".to_owned()), None);
    }
}
