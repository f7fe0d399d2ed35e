//! The way to one topic, with the client's types in it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientError, ClientResult, DefaultMQProducer, MessageQueueSelector, SelectMessageQueueByHash,
};
use rocketmq_model::common::message::message_single::Message;
use rocketmq_model::message::MessageQueue;
use rocketmq_model::result::{SendResult, SendStatus};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::parcel::Parcel;
use super::{Answered, Outlet, Unpublished};
use crate::Error;
use crate::rocketmq::{
    Admin, Base, Client, MESSAGE_ILLEGAL, RocketMqOptions, answer, closed, failure, joined, transient,
};

/// How long a send may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a producer to which a broker did not answer is replaced at the most.
const RENEW_EVERY: Duration = Duration::from_secs(3);

/// Publishes messages to one topic.
pub(super) struct TopicOutlet {
    client: Client,
    topic: String,
    line: Arc<Line>,
}

/// The producer in use.
struct Line {
    base: Base,
    group: String,
    in_use: Mutex<InUse>,
}

struct InUse {
    /// None: closed.
    producer: Option<Arc<DefaultMQProducer>>,
    since: Instant,
    /// Whether somebody did not answer it.
    is_worn: bool,
}

impl TopicOutlet {
    pub(super) async fn open(options: RocketMqOptions) -> Result<Self, Error> {
        let topic = options.topic.clone();
        let (client, line) = Client::open(options, Line::open).await?;
        Ok(Self {
            client,
            topic,
            line: Arc::new(line),
        })
    }
}

impl Outlet for TopicOutlet {
    fn publish(&self, parcel: Parcel) -> Answered<'_, Result<(), Unpublished>> {
        Box::pin(async move {
            let Parcel { queue_key, .. } = &parcel;
            let queue_key = queue_key.clone();
            let message = message(&self.topic, parcel)?;
            let line = self.line.clone();
            // To its end even if the handler is stopped: what is half started cannot be taken back.
            let sending = self
                .client
                .spawn(async move { line.publish(message, queue_key).await });
            joined(sending).await.map_err(Unpublished::Perhaps)?
        })
    }

    fn close(&self) -> Answered<'_, ()> {
        Box::pin(async {
            let line = self.line.clone();
            // An error says that the runtime has ended.
            let _ended = joined(self.client.spawn(async move { line.close().await })).await;
            self.client.close().await;
        })
    }
}

impl fmt::Debug for TopicOutlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicOutlet")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

fn message(topic: &str, parcel: Parcel) -> Result<Message, Unpublished> {
    let mut message = Message::builder()
        .topic(topic)
        .body(parcel.body)
        .keys(parcel.keys);
    if let Some(tag) = parcel.tag {
        message = message.tags(tag);
    }
    for (name, value) in parcel.properties {
        message = message
            .raw_property(name, value)
            .map_err(|cause| Unpublished::Never(format!("property: {cause}")))?;
    }
    message
        .build()
        .map_err(|cause| Unpublished::Never(format!("no message can be made of the task: {cause}")))
}

impl Line {
    /// Fails if nobody has the topic.
    async fn open(base: Base, options: RocketMqOptions) -> Result<Self, Error> {
        let admin = Admin::open(&base).await?;
        let known = admin.knows(&options.topic).await;
        admin.close().await;
        let known = match known {
            Err(error) if error.is_transient() && options.lazy => true,
            known => known?,
        };
        if !known {
            return Err(Error::invalid(
                "topic",
                options.topic,
                "allowed is a topic that is there: it is the service's own, so its operator makes it",
            ));
        }
        let producer = base.producer(&options.group, PATIENCE).await?;
        Ok(Self {
            base,
            group: options.group,
            in_use: Mutex::new(InUse {
                producer: Some(Arc::new(producer)),
                since: Instant::now(),
                is_worn: false,
            }),
        })
    }

    async fn publish(&self, message: Message, queue_key: Option<String>) -> Result<(), Unpublished> {
        let producer = self.producer().await.map_err(Unpublished::Perhaps)?;
        let sending = async {
            match queue_key {
                Some(key) => producer.send_with_selector(message, by_hash, key).await,
                None => producer.send(message).await,
            }
        };
        // The client's own patience is for the send alone; before that it may ask the nameservers.
        let Ok(outcome) = timeout(2 * PATIENCE, sending).await else {
            self.wear(&producer).await;
            let late = transient("publishing was not confirmed in time");
            return Err(Unpublished::Perhaps(late));
        };
        if let Err(cause) = &outcome
            && answer(cause).is_none()
        {
            self.wear(&producer).await;
        }
        judge(outcome)
    }

    /// The producer in use; a fresh one, if the last was not answered.
    ///
    /// For after five failed connections to a broker the client tries no other for 30 s, though it has long come back.
    async fn producer(&self) -> Result<Arc<DefaultMQProducer>, Error> {
        let mut in_use = self.in_use.lock().await;
        let Some(producer) = in_use.producer.clone() else {
            return Err(closed());
        };
        if !in_use.is_worn || in_use.since.elapsed() < RENEW_EVERY {
            return Ok(producer);
        }
        let fresh = Arc::new(self.base.producer(&self.group, PATIENCE).await?);
        *in_use = InUse {
            producer: Some(fresh.clone()),
            since: Instant::now(),
            is_worn: false,
        };
        // What other brokers are about to confirm by it is not cut off.
        tokio::spawn(Box::pin(async move {
            sleep(2 * PATIENCE).await;
            DefaultMQProducer::clone(&producer).shutdown().await;
        }));
        Ok(fresh)
    }

    async fn wear(&self, worn: &Arc<DefaultMQProducer>) {
        let mut in_use = self.in_use.lock().await;
        if in_use
            .producer
            .as_ref()
            .is_some_and(|producer| Arc::ptr_eq(producer, worn))
        {
            in_use.is_worn = true;
        }
    }

    async fn close(&self) {
        let producer = self.in_use.lock().await.producer.take();
        if let Some(producer) = producer {
            DefaultMQProducer::clone(&producer).shutdown().await;
        }
    }
}

fn by_hash(queues: &[MessageQueue], message: &Message, key: &String) -> Option<MessageQueue> {
    SelectMessageQueueByHash.select(queues, message, key)
}

/// Whether the message is published.
fn judge(outcome: ClientResult<Option<SendResult>>) -> Result<(), Unpublished> {
    match outcome {
        Ok(Some(result)) => stored(result.send_status),
        Ok(None) => Err(Unpublished::Perhaps(transient("publishing had no outcome"))),
        Err(cause) if is_illegal(&cause) => {
            let error = failure("publishing", cause);
            Err(Unpublished::Never(error.to_string()))
        }
        Err(cause) => Err(Unpublished::Perhaps(failure("publishing", cause))),
    }
}

fn is_illegal(cause: &ClientError) -> bool {
    answer(cause) == Some(MESSAGE_ILLEGAL)
}

/// Whether a message with this status outlives a crash of its broker, as far as trying again can change that.
fn stored(status: SendStatus) -> Result<(), Unpublished> {
    match status {
        SendStatus::SendOk | SendStatus::SlaveNotAvailable => Ok(()),
        SendStatus::FlushDiskTimeout | SendStatus::FlushSlaveTimeout => Err(Unpublished::Perhaps(transient(
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
            match judge(Ok(Some(sent))) {
                Ok(()) => assert!(is_stored, "{status}"),
                Err(Unpublished::Perhaps(_)) => assert!(!is_stored, "{status}"),
                Err(Unpublished::Never(reason)) => panic!("{status}: {reason}"),
            }
        }
        assert!(matches!(judge(Ok(None)), Err(Unpublished::Perhaps(_))));
    }

    #[test]
    fn the_queue_of_a_key_is_the_one_that_java_chooses() {
        let queues: Vec<_> = (0..8)
            .map(|number| MessageQueue::from_parts("t", "broker-a", number))
            .collect();
        let message = Message::builder().topic("t").body("x").build().unwrap();
        // What `String.hashCode()` of Java gives.
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
