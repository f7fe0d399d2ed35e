//! Describes a message to publish.

use std::collections::BTreeMap;

use rocketmq_model::common::message::{MessageConst, STRING_HASH_SET};

use super::names::check_topic;
use crate::Error;

/// The longest body: the brokers' default (`maxMessageSize`), and the most that the client sends.
pub(crate) const LONGEST_BODY: usize = 4 * 1_024 * 1_024;
/// The longest tag, and name of a property.
pub(crate) const LONGEST_NAME: usize = 255;
/// How long all properties may be together: what brokers take (a signed 16-bit length), less what the client and the
/// broker add, such as `UNIQ_KEY` and `CLUSTER`.
const LONGEST_PROPERTIES: usize = 32_767 - 512;
/// The most that a broker keeps of a message beside its body, topic and properties, and that is added to those.
const BESIDE: usize = 128 + 512;

/// A message for a topic, as any producer could send it: for [`Publisher::publish`](super::Publisher::publish).
///
/// ```
/// use delayline::rocketmq::Message;
///
/// let message = Message::new("orders", *br#"{"order":42}"#)
///     .tag("cancel")
///     .key("order-42")
///     .property("source", "shop");
/// # assert!(format!("{message:?}").contains("order-42"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(super) topic: String,
    pub(crate) body: Vec<u8>,
    pub(crate) tag: Option<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) properties: BTreeMap<String, String>,
    /// Properties with RocketMQ's own names.
    pub(super) marks: Vec<(&'static str, String)>,
    pub(crate) queue_key: Option<String>,
}

impl Message {
    /// Makes a message for this topic. Its body has 1 byte at least, and at the most as many as brokers take, which is
    /// checked when it is published ([`max_message_size`](super::RocketMqOptions::max_message_size), 4 MiB by default).
    pub fn new(topic: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            topic: topic.into(),
            body: body.into(),
            tag: None,
            keys: Vec::new(),
            properties: BTreeMap::new(),
            marks: Vec::new(),
            queue_key: None,
        }
    }

    /// Sets the tag by which consumers subscribe. Default: none.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds a key by which the message can be found on a broker: text without white space.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Adds a user property. The name is none of RocketMQ's own (such as `KEYS`); neither it nor the value is blank or
    /// has the characters U+0001 or U+0002 in it, by which brokers separate properties.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Makes it a part of a trace: sets its user properties `traceparent` and `tracestate`, as of W3C Trace Context.
    /// Earlier values of these move to `DELAYLINE_TRACEPARENT` and `DELAYLINE_TRACESTATE`, so that its consumer finds
    /// both.
    #[must_use]
    pub fn in_trace(mut self, traceparent: &str, tracestate: Option<&str>) -> Self {
        for (name, before, value) in [
            ("traceparent", "DELAYLINE_TRACEPARENT", Some(traceparent)),
            ("tracestate", "DELAYLINE_TRACESTATE", tracestate),
        ] {
            if let Some(value) = self.properties.remove(name) {
                self = self.property(before, value);
            }
            if let Some(value) = value {
                self = self.property(name, value);
            }
        }
        self
    }

    /// Sends messages with equal keys to the same queue, as Java's `SelectMessageQueueByHash` does: the queue's place is
    /// `String.hashCode()` of the key, modulo the number of queues that can be written to, without its sign. Default: any
    /// queue.
    #[must_use]
    pub fn by_queue_key(mut self, key: impl Into<String>) -> Self {
        self.queue_key = Some(key.into());
        self
    }

    /// Does the same as [`by_queue_key`](Self::by_queue_key), and says so in the message by its property
    /// `__SHARDINGKEY`.
    #[must_use]
    pub fn sharding_key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.marks
            .push((MessageConst::PROPERTY_SHARDING_KEY, key.clone()));
        self.by_queue_key(key)
    }

    pub(super) fn mark(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.marks.push((name, value.into()));
        self
    }

    /// Returns how many bytes a broker keeps of it at the most. Brokers before 5.0 allow no more than `maxMessageSize`
    /// of all this together, later ones of the body alone.
    pub fn size(&self) -> usize {
        // An incompressible body is a little longer when it is compressed.
        let body = self.body.len() + self.body.len() / 2_048;
        body + self.topic.len() + self.properties_size() + BESIDE
    }

    /// Returns how long its properties are together, as brokers have them: each with a character behind its name and
    /// its value.
    fn properties_size(&self) -> usize {
        let keys = self.keys.iter().map(|key| key.len() + 1).sum::<usize>();
        let (keys_name, tags_name) = (
            MessageConst::PROPERTY_KEYS.len(),
            MessageConst::PROPERTY_TAGS.len(),
        );
        let named = self
            .properties
            .iter()
            .map(|(name, value)| (name.len(), value.len()));
        let marks = self.marks.iter().map(|(name, value)| (name.len(), value.len()));
        named
            .chain(marks)
            .chain((keys > 0).then_some((keys_name, keys)))
            .chain(self.tag.as_ref().map(|tag| (tags_name, tag.len())))
            .map(|(name, value)| name + value + 2)
            .sum()
    }

    /// Refuses a message that brokers with bodies of up to `longest_body` bytes do not take, or would misread.
    pub(super) fn check(&self, longest_body: usize) -> Result<(), Error> {
        check_topic(&self.topic)?;
        let size = self.body.len();
        if !(1..=longest_body).contains(&size) {
            return Err(Error::invalid(
                "body",
                format_args!("of {size} bytes"),
                format!("allowed are 1 to {longest_body}"),
            ));
        }
        let size = self.properties_size();
        if size > LONGEST_PROPERTIES {
            return Err(Error::invalid(
                "properties",
                format_args!("of {size} bytes together"),
                format!("allowed are up to {LONGEST_PROPERTIES}, with their names, tag and keys"),
            ));
        }
        if let Some(tag) = &self.tag
            && !separates_nothing(tag)
        {
            return Err(Error::invalid("tag", tag, SEPARATES_NOTHING));
        }
        self.keys.iter().try_for_each(|key| check_key(key))?;
        for (name, value) in &self.properties {
            if !separates_nothing(name) || is_reserved(name) {
                let allowed = format!("allowed is no name of RocketMQ's own, and {SEPARATES_NOTHING}");
                return Err(Error::invalid("property", name, allowed));
            }
            // The value may be a secret: it is not repeated.
            if !separates_nothing(value) {
                return Err(Error::invalid("property", name, SEPARATES_NOTHING));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("tag", &self.tag)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// Says whether a property of this name is RocketMQ's own.
pub(crate) fn is_reserved(name: &str) -> bool {
    STRING_HASH_SET.contains(name)
        || matches!(
            name,
            MessageConst::PROPERTY_INNER_MULTI_DISPATCH
                | MessageConst::PROPERTY_SHARDING_KEY
                | MessageConst::PROPERTY_STARTDE_LIVER_TIME
        )
        || name.starts_with("TIMER_")
        || name.starts_with("__RMQ.")
}

const SEPARATES_NOTHING: &str = "text that is not blank, without U+0001 and U+0002";

/// Says whether brokers read it as one text: by those two characters they separate properties.
fn separates_nothing(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(['\u{1}', '\u{2}'])
}

/// Refuses a key that a broker would read as several.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if separates_nothing(key) && !key.contains(char::is_whitespace) {
        return Ok(());
    }
    let allowed = format!("allowed is {SEPARATES_NOTHING}, and without white space");
    Err(Error::invalid("key", key, allowed))
}

/// Refuses a tag that no consumer could subscribe to.
pub(crate) fn check_tag(tag: &str) -> Result<(), Error> {
    let fits = (1..=LONGEST_NAME).contains(&tag.len()) && tag != "*";
    if fits && !tag.contains(|sign: char| sign.is_whitespace() || sign.is_control() || sign == '|') {
        return Ok(());
    }
    Err(Error::invalid(
        "tag",
        tag,
        format!(
            "allowed are 1 to {LONGEST_NAME} bytes without white space, control characters or |, and not *"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message::new("orders", *b"{}")
    }

    #[test]
    fn what_no_broker_takes_is_refused_by_name() {
        for (message, field) in [
            (Message::new("or ders", *b"{}"), "topic"),
            (Message::new("orders", *b""), "body"),
            (Message::new("orders", vec![0; LONGEST_BODY + 1]), "body"),
            (message().tag("a\u{1}b"), "tag"),
            (message().key("a b"), "key"),
            (message().key(""), "key"),
            (message().property("KEYS", "x"), "property"),
            (message().property("TIMER_DELAY_MS", "1"), "property"),
            (message().property("__STARTDELIVERTIME", "1"), "property"),
            (message().property("", "x"), "property"),
            (message().property("a\u{1}", "x"), "property"),
            (message().property("a", "secret\u{2}"), "property"),
            (message().property("a", " "), "property"),
            (message().property("a", "x".repeat(32_300)), "properties"),
            (message().sharding_key("x".repeat(32_300)), "properties"),
            (message().tag("x".repeat(32_300)), "properties"),
            (message().key("x".repeat(32_300)), "properties"),
        ] {
            let error = message.check(LONGEST_BODY).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field} is")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_any_producer_may_send_passes() {
        let message = Message::new("orders", vec![0; LONGEST_BODY])
            .tag("取消-1")
            .key("order-42")
            .property("trace.parent_id-1", "ü\n1")
            .property("DELAYLINE_ID", "1")
            .property("with space", "x")
            .sharding_key("42");
        message.check(LONGEST_BODY).unwrap();
        let size = message.size() - LONGEST_BODY;
        assert!((2_700..4_000).contains(&size), "{size}");
    }
}
