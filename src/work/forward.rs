//! Publishes due tasks to a topic of the service's own.

mod task_message;
mod unpublished;

use std::fmt;

use crate::rocketmq::{Message, PublishError, Publisher, RocketMqOptions, message};
use crate::{Context, Error, Failure, Kind, Outcome, Policy, Worker};

/// Publishes due tasks to a topic of the service's own, so that consumers in any language stay as they are: for
/// [`Worker::forward`].
///
/// To a consumer the message looks like any other producer's:
///
/// | part | what |
/// |---|---|
/// | body | the task's payload as it was scheduled: JSON, or the bytes given; 1 byte up to [`max_message_size`](crate::rocketmq::RocketMqOptions::max_message_size) |
/// | tag | [`tag`](Self::tag) |
/// | message keys | the task's id, and the task's key if it has no white space |
/// | user properties | those of [`property`](Self::property), then the task's headers, then these |
/// | `DELAYLINE_ID` | the task's id: the same for every attempt: a consumer can drop repeats by it and the body |
/// | `DELAYLINE_KIND` | the task's kind |
/// | `DELAYLINE_KEY` | the task's key, if it has one |
/// | `DELAYLINE_ATTEMPT` | which attempt this is, from 1 |
/// | `DELAYLINE_DUE_AT` | when the task was due at first, before any retry, in ms since 1970 |
///
/// **At least once.** The task is done when a broker has confirmed the message. A send that failed, or whose outcome is
/// not known, is a failed attempt, tried again by the policy of the kind; so is one that the broker has not flushed, or
/// copied to its replica, in its own time (`FLUSH_DISK_TIMEOUT`, `FLUSH_SLAVE_TIMEOUT`), as a crash may lose it. A broker
/// that has no replica to copy to (`SLAVE_NOT_AVAILABLE`) has the message itself, and would say so of every further copy:
/// that counts as done. While no broker has the topic, because they are away, the task waits without an attempt
/// ([`PublishError::outcome`]). A message that no broker will ever take makes its task dead at once: an empty or too long
/// payload, a header that cannot be a property, or one that a broker calls illegal.
///
/// A cheap handle: clone it to forward several kinds through one connection, each with a tag of its own.
#[derive(Clone)]
pub struct Forward {
    publisher: Publisher,
    topic: String,
    tag: Option<String>,
    properties: Vec<(String, String)>,
    by_key: bool,
    saw_topic: bool,
}

impl Forward {
    /// Connects to the nameservers, for messages to `topic`. Options for wake-ups are ignored.
    ///
    /// The topic is the service's own: it must exist. With [`RocketMqOptions::lazy`] it need not be seen if the
    /// nameservers are away, and its tasks wait.
    pub async fn connect(
        options: impl Into<RocketMqOptions>,
        topic: impl Into<String>,
    ) -> Result<Self, Error> {
        let topic = topic.into();
        let opened = Publisher::open(options.into().topic(&topic), Some(topic.clone())).await?;
        let (publisher, saw_topic) = opened;
        Ok(Self {
            publisher,
            saw_topic,
            topic,
            tag: None,
            properties: Vec::new(),
            by_key: false,
        })
    }

    /// Sets the tag of each message, by which consumers subscribe. Default: none.
    ///
    /// 1 to 255 bytes without white space or `|`, and not `*`; another one is refused when the worker starts.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds a user property to each message, beside those that are always there.
    ///
    /// The name is 1 to 255 letters, digits and any of `_-.`, none of RocketMQ's own names (such as `KEYS`) and none
    /// that begins with `DELAYLINE_`; the value is text of 1 to 4,096 bytes without control characters. Another one is
    /// refused when the worker starts.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Sends tasks with equal keys to the same queue, as Java's `SelectMessageQueueByHash` does: the queue's place is
    /// `String.hashCode()` of the task's key, modulo the number of queues that can be written to, without its sign.
    ///
    /// So it stays the same as long as the number of queues does, which a broker that is down changes; and retries may
    /// overtake. Tasks without a key go to any queue. Default: every task goes to any queue.
    #[must_use]
    pub fn by_key(mut self) -> Self {
        self.by_key = true;
        self
    }

    /// Closes the connection, for all clones; a task that is forwarded later is a failed attempt.
    ///
    /// Without this call, the connection closes with the last clone.
    pub async fn close(&self) {
        self.publisher.close().await;
    }

    /// Refuses a tag and properties that no message can have. [`Worker::forward`] calls it by itself.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(tag) = &self.tag {
            message::check_tag(tag)?;
        }
        self.properties
            .iter()
            .try_for_each(|(name, value)| task_message::check_property(name, value))
    }

    /// Says whether the topic existed when this connected; otherwise the nameservers were away.
    pub fn saw_topic(&self) -> bool {
        self.saw_topic
    }

    /// Says whether any broker has the topic now, by the nameservers.
    pub async fn topic_exists(&self) -> Result<bool, Error> {
        self.publisher.topic_exists(&self.topic).await
    }

    /// Publishes the task of a handler, as a part of a trace: for a handler that publishes in a span of its own.
    ///
    /// The message is as by [`Message::in_trace`]. A value that no property can have makes the task dead, as such a
    /// header does.
    pub async fn publish_in_trace(
        &self,
        context: &Context,
        traceparent: &str,
        tracestate: Option<&str>,
    ) -> Result<Outcome, Failure> {
        let given = [("traceparent", Some(traceparent)), ("tracestate", tracestate)];
        let checked = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .try_for_each(|(name, value)| task_message::check_property(name, value));
        if let Err(error) = checked {
            return Ok(Outcome::Discard(format!("header: {error}")));
        }
        let message = task_message::message(self, context.task());
        let message = message.map(|message| message.in_trace(traceparent, tracestate));
        self.send(message, context).await
    }

    /// Publishes the task of a handler, as [`Worker::forward`] does.
    pub async fn publish(&self, context: &Context) -> Result<Outcome, Failure> {
        self.send(task_message::message(self, context.task()), context)
            .await
    }

    /// Sends the message, or fails as the reason says that there can be none.
    async fn send(&self, message: Result<Message, String>, context: &Context) -> Result<Outcome, Failure> {
        let sent = match message {
            Ok(message) => self.publisher.publish(message).await,
            Err(reason) => Err(PublishError::Rejected(reason)),
        };
        match sent {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => error.outcome(context),
        }
    }
}

/// What only RocketMQ adds to a worker.
impl Worker {
    /// Publishes the tasks of `kind` to a topic of the service's own, where its consumers run them: see [`Forward`].
    #[must_use]
    pub fn forward(self, kind: impl Into<Kind>, policy: Policy, forward: Forward) -> Self {
        let worker = match forward.check() {
            Ok(()) => self,
            Err(error) => self.refuse(error),
        };
        worker.handle_bytes(kind, policy, move |context| {
            let forward = forward.clone();
            async move { forward.publish(&context).await }
        })
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward")
            .field("topic", &self.topic)
            .field("tag", &self.tag)
            .field("by_key", &self.by_key)
            .finish_non_exhaustive()
    }
}
