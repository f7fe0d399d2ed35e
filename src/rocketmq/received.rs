//! Describes a received message.

use std::collections::BTreeMap;
use std::fmt;

use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::{MessageConst, MessageTrait};
use rocketmq_model::utils::message_utils::build_message_id;

use super::{Message, body, message};
use crate::Timestamp;

/// The property value that marks an answer (`MSG_TYPE`).
const REPLY: &str = "reply";

/// A message that an [`Inbox`](super::Inbox) has received.
#[derive(Clone)]
pub struct Received {
    /// The topic that it was sent to.
    pub topic: String,
    /// Its producer's id for it (`UNIQ_KEY`): the same whenever it comes again.
    pub id: String,
    /// When its broker stored it, by that broker's clock; for a message that was given back to the broker, when it was
    /// first stored, as far as is known.
    pub stored_at: Timestamp,
    /// When its producer sent it, by the producer's clock.
    pub born_at: Timestamp,
    /// The name of its broker.
    pub broker: String,
    /// Its place in the log of its broker: later messages are further on. For a message that was given back, its first
    /// place; none, if that is not known.
    pub place: Option<u64>,
    /// The body as it was sent; or why it cannot be had, and then [`raw_body`](Self::raw_body) is what came.
    pub body: Result<Vec<u8>, String>,
    /// All properties, RocketMQ's own among them.
    pub properties: BTreeMap<String, String>,
    /// The body as the broker has it, if it differs from `body`, and its flags.
    raw: (Vec<u8>, i32),
    /// How many bytes the broker keeps of it.
    stored_size: usize,
    /// The ticket of its batch.
    pub(super) ticket: u64,
}

impl Received {
    /// Makes a message that did not come from a broker, for tests of receivers.
    pub fn new(
        topic: impl Into<String>,
        id: impl Into<String>,
        stored_at: Timestamp,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            topic: topic.into(),
            id: id.into(),
            stored_at,
            born_at: stored_at,
            broker: String::new(),
            place: None,
            body: Ok(body.into()),
            properties: BTreeMap::new(),
            raw: (Vec::new(), 0),
            stored_size: 0,
            ticket: 0,
        }
    }

    /// Converts a message of the client; its body is still to be [expanded](Self::expanded).
    pub(super) fn of_client(message: &MessageExt) -> Self {
        let properties: BTreeMap<_, _> = message
            .properties()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let id = properties.get(MessageConst::PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        Self {
            topic: message.topic().to_string(),
            id: id.cloned().unwrap_or_else(|| message.msg_id().to_string()),
            stored_at: Timestamp::from_millis(message.store_timestamp()),
            born_at: Timestamp::from_millis(message.born_timestamp()),
            broker: message.broker_name().to_owned(),
            place: place(message),
            body: Ok(Vec::new()),
            properties,
            raw: (
                message.get_body().map_or_else(Vec::new, |body| body.to_vec()),
                message.sys_flag(),
            ),
            stored_size: usize::try_from(message.store_size()).unwrap_or(0),
            ticket: 0,
        }
    }

    /// Decompresses its body, if that has no more than so many bytes.
    pub(super) fn expanded(mut self, longest_body: usize) -> Self {
        let (raw, flags) = &self.raw;
        self.body = body::expanded(raw, *flags, longest_body);
        if self.body.is_ok() {
            self.raw = (Vec::new(), 0);
        }
        self
    }

    /// Returns how many bytes of memory its body takes.
    pub(super) fn bytes(&self) -> usize {
        self.raw.0.len() + self.body.as_ref().map_or(0, Vec::len)
    }

    /// Returns the body as it came where it cannot be had as it was sent, and how it is compressed, if it is.
    pub fn raw_body(&self) -> Option<(&[u8], Option<&'static str>)> {
        let (raw, flags) = &self.raw;
        self.body
            .is_err()
            .then(|| (raw.as_slice(), body::compression(*flags)))
    }

    /// Returns how many bytes its broker keeps of it in all; 0 if it did not come from one.
    pub fn stored_size(&self) -> usize {
        self.stored_size
    }

    /// Returns the tag by which consumers subscribe.
    pub fn tag(&self) -> Option<&str> {
        self.property(MessageConst::PROPERTY_TAGS)
    }

    /// Returns the keys by which the message can be found on a broker.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.property(MessageConst::PROPERTY_KEYS).unwrap_or_default();
        keys.split_whitespace()
    }

    /// Returns the key by which its producer chose a queue, if it has one.
    pub fn sharding_key(&self) -> Option<&str> {
        self.property(MessageConst::PROPERTY_SHARDING_KEY)
    }

    /// Returns the properties that are none of RocketMQ's own.
    pub fn user_properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| !message::is_reserved(name))
    }

    /// Makes the answer to a producer that waits for one (`producer.request` of the clients, since RocketMQ 4.6); none
    /// if it does not wait.
    pub fn reply(&self, body: impl Into<Vec<u8>>) -> Option<Message> {
        let cluster = self.property(MessageConst::PROPERTY_CLUSTER)?;
        let requester = self.property(MessageConst::PROPERTY_MESSAGE_REPLY_TO_CLIENT)?;
        let correlation = self.property(MessageConst::PROPERTY_CORRELATION_ID)?;
        let reply = Message::new(format!("{cluster}_REPLY_TOPIC"), body)
            .mark(MessageConst::PROPERTY_MESSAGE_TYPE, REPLY)
            .mark(MessageConst::PROPERTY_MESSAGE_REPLY_TO_CLIENT, requester)
            .mark(MessageConst::PROPERTY_CORRELATION_ID, correlation);
        Some(match self.property(MessageConst::PROPERTY_MESSAGE_TTL) {
            Some(ttl) => reply.mark(MessageConst::PROPERTY_MESSAGE_TTL, ttl),
            None => reply,
        })
    }

    fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }
}

/// Returns a message's place in the log of its broker, or the place that it had before it was given back.
fn place(message: &MessageExt) -> Option<u64> {
    let Some(first) = message.properties().get(MessageConst::PROPERTY_ORIGIN_MESSAGE_ID) else {
        return u64::try_from(message.commit_log_offset()).ok();
    };
    // The address of a broker, and a place of 16 digits. A message that its client sent again has another id there, and
    // may be on another broker than at first.
    let of_this_broker = build_message_id(message.store_host(), 0);
    let address = of_this_broker.strip_suffix("0000000000000000")?;
    u64::from_str_radix(first.strip_prefix(address)?, 16).ok()
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("topic", &self.topic)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(first: Option<&str>) -> MessageExt {
        let mut message = MessageExt::default();
        message.set_store_host("10.0.0.7:10911".parse().unwrap());
        message.set_commit_log_offset(4_096);
        if let Some(first) = first {
            message.put_property(
                MessageConst::PROPERTY_ORIGIN_MESSAGE_ID.into(),
                first.to_owned().into(),
            );
        }
        message
    }

    #[test]
    fn what_was_given_back_has_the_place_of_its_first_time() {
        assert_eq!(place(&stored(None)), Some(4_096));
        let first = build_message_id("10.0.0.7:10911".parse().unwrap(), 255);
        assert_eq!(place(&stored(Some(&first))), Some(255), "{first}");
        for unknown in [
            &build_message_id("10.0.0.8:10911".parse().unwrap(), 255),
            // As clients name messages.
            "7F000001000078A4B4A12F9D00000001",
            "",
        ] {
            assert_eq!(place(&stored(Some(unknown))), None, "{unknown}");
        }
    }
}
