//! Which brokers, and how they are spoken to.

use serde::Deserialize;
use toml::Spanned;

use crate::serve::text::Text;

/// The brokers that carry wake-ups, and messages of tasks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RocketMq {
    /// `HOST:PORT`, several separated by `;`.
    pub(crate) nameserver: Text,
    pub(crate) access_key: Option<Spanned<Text>>,
    pub(crate) secret_key: Option<Spanned<Text>>,
    /// The topic of the wake-ups, and the group that consumes it.
    pub(crate) topic: Option<Text>,
    pub(crate) group: Option<Text>,
    /// How many bytes the body of a message may have, as the brokers' `maxMessageSize` says.
    pub(crate) max_message_size: Option<MessageSize>,
}

/// How many bytes the body of a message may have.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "usize")]
pub(crate) struct MessageSize(usize);

impl TryFrom<usize> for MessageSize {
    type Error = String;

    fn try_from(bytes: usize) -> Result<Self, String> {
        // Brokers take no longer request.
        const MOST: usize = 16 << 20;
        match (1..=MOST).contains(&bytes) {
            true => Ok(Self(bytes)),
            false => Err(format!(
                "rocketmq.max_message_size is {bytes}: allowed are 1 to {MOST} bytes"
            )),
        }
    }
}

#[cfg(feature = "rocketmq")]
impl RocketMq {
    pub(crate) fn options(&self) -> delayline::rocketmq::RocketMqOptions {
        let mut options = delayline::rocketmq::RocketMqOptions::new(self.nameserver.reveal());
        if let (Some(access), Some(secret)) = (&self.access_key, &self.secret_key) {
            options = options.credentials(access.get_ref().reveal(), secret.get_ref().reveal());
        }
        if let Some(topic) = &self.topic {
            options = options.topic(topic.reveal());
        }
        if let Some(group) = &self.group {
            options = options.group(group.reveal());
        }
        if let Some(MessageSize(bytes)) = self.max_message_size {
            options = options.max_message_size(bytes);
        }
        options
    }
}
