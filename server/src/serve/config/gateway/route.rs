//! A topic whose messages all go to one other.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};

use super::{KeyProperty, USUAL_KIND};

/// Where the messages of a topic go: a text, or a table that says more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) to: String,
    /// The kind of its tasks; else it is made of the topic's name.
    pub(crate) kind: Option<String>,
    /// Which property of its messages is their key; else the gateway's.
    pub(crate) key: Option<KeyProperty>,
}

impl Route {
    pub(crate) fn to(topic: &str) -> Self {
        Self {
            to: topic.to_owned(),
            kind: None,
            key: None,
        }
    }

    /// The kind of the tasks of messages to this topic: no other has it, and so their keys are their own.
    pub(crate) fn kind(&self, topic: &str) -> String {
        let usual = || format!("{USUAL_KIND}.{topic}");
        self.kind.clone().unwrap_or_else(usual)
    }
}

impl<'de> Deserialize<'de> for Route {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    to: String,
    kind: Option<String>,
    key: Option<KeyProperty>,
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Route;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a topic, or a table such as { to = \"orders\", kind = \"orders\", key = \"KEYS\" }")
    }

    fn visit_str<E: de::Error>(self, topic: &str) -> Result<Route, E> {
        Ok(Route::to(topic))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Route, A::Error> {
        let Table { to, kind, key } = Table::deserialize(MapAccessDeserializer::new(table))?;
        Ok(Route { to, kind, key })
    }
}
