//! What becomes of tasks that are due.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::endpoint::{Address, Endpoint};
use crate::serve::webhook::Secrets;

/// Where the tasks of a kind go when they are due.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delivery {
    /// They wait until a worker claims them over HTTP.
    Pull,
    /// They are published to a topic of RocketMQ.
    Topic(Topic),
    /// They are posted to a URL.
    Webhook(Endpoint),
}

impl fmt::Display for Delivery {
    /// For people: of a URL, in which a secret may be, only the host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull => f.write_str("claimed by workers"),
            Self::Topic(Topic { topic, tag: None }) => write!(f, "published to {topic}"),
            Self::Topic(Topic {
                topic,
                tag: Some(tag),
            }) => write!(f, "published to {topic}, tag {tag}"),
            Self::Webhook(endpoint) => match endpoint.url.host() {
                Some(host) => write!(f, "posted to {host}"),
                None => f.write_str("posted"),
            },
        }
    }
}

/// A topic of the service's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) topic: String,
    pub(crate) tag: Option<String>,
}

/// All that a table may have, whichever of both it means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    topic: Option<String>,
    tag: Option<String>,
    url: Option<Address>,
    secret: Option<Secrets>,
}

impl TryFrom<Table> for Delivery {
    type Error = &'static str;

    fn try_from(table: Table) -> Result<Self, &'static str> {
        match table {
            Table {
                topic: Some(topic),
                tag,
                url: None,
                secret: None,
            } => Ok(Self::Topic(Topic { topic, tag })),
            Table {
                topic: None,
                tag: None,
                url: Some(url),
                secret: Some(secrets),
            } => Ok(Self::Webhook(Endpoint { url, secrets })),
            _ => Err(
                "deliver has other keys than go together: allowed are { topic = \"…\" }, perhaps with a tag, and \
                 { url = \"…\", secret = \"…\" }",
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Delivery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Delivery;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"pull\", { topic = \"…\" }, or { url = \"…\", secret = \"…\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Delivery, E> {
                match text {
                    "pull" => Ok(Delivery::Pull),
                    _ => Err(E::custom(
                        "deliver is neither \"pull\" nor a table: allowed are \"pull\", { topic = \"…\" } and \
                         { url = \"…\", secret = \"…\" }",
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Delivery, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                table.try_into().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
