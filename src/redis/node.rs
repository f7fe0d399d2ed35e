//! Reads what a server reports about itself.

use std::collections::HashMap;

use redis::{FromRedisValue, ParsingError, Value};
use serde::Serialize;

use super::call::Call;
use super::link::Link;
use crate::{Error, Timestamp, defaults};

/// The longest word that is shown, in characters.
const LONGEST: usize = 64;

/// What one server reports about itself, by `INFO`, as far as it matters to the data in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// Host and port; for a single server as the URL has them.
    pub address: String,
    /// Its version, such as `7.0.15`.
    pub version: String,
    /// Whether it takes writes, and is no replica of another.
    pub is_master: bool,
    /// How many replicas are connected to it.
    pub replicas: u64,
    /// `maxmemory-policy`: what it removes when it is full.
    pub policy: String,
    /// `maxmemory` in bytes; 0: no limit.
    pub memory_limit: u64,
    /// How many bytes it uses.
    pub memory_used: u64,
    /// Whether it appends every write to a file.
    pub appends: bool,
    /// Whether it saved a snapshot since it was started, or started from one.
    pub saves: bool,
    /// Whether it can write to its disk, as far as it tried.
    pub can_write: bool,
    /// Its clock at that moment. Redis 6.2 and later report it.
    pub time: Option<Timestamp>,
}

impl Node {
    /// Asks each master.
    pub(crate) async fn all(link: &Link) -> Result<Vec<Self>, Error> {
        let mut nodes = Vec::new();
        for (address, text) in link
            .call::<Texts>(defaults::SEND_TIMEOUT, &Call::command(redis::cmd("INFO")))
            .await?
            .0
        {
            let address = address.unwrap_or_else(|| link.address().first());
            nodes.push(Self {
                address,
                ..Self::read(&text)
            });
        }
        Ok(nodes)
    }

    /// Says whether it removes tasks and wake-ups when it is full. The other policies remove nothing, or only keys that
    /// have an expiry, which no key has that matters.
    pub fn evicts(&self) -> bool {
        self.memory_limit > 0 && self.policy.starts_with("allkeys-")
    }

    /// Parses `INFO`, all of it or a part; the address is not in it.
    pub(crate) fn read(text: &str) -> Self {
        let fields: HashMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .collect();
        let word = |name: &str| fields.get(name).copied().unwrap_or_default();
        // For display, so without control characters.
        let shown = |name: &str| -> String {
            let plain = word(name).chars().filter(|c| !c.is_control());
            plain.take(LONGEST).collect()
        };
        let number = |name: &str| word(name).parse::<i64>().unwrap_or(0);
        let count = |name: &str| number(name).unsigned_abs();
        let micros = fields
            .get("server_time_usec")
            .and_then(|text| text.parse::<i64>().ok());
        let is_well = |name: &str| matches!(word(name), "ok" | "");
        Self {
            address: String::new(),
            version: shown("redis_version"),
            is_master: word("role") == "master",
            replicas: count("connected_slaves"),
            policy: shown("maxmemory_policy"),
            memory_limit: count("maxmemory"),
            memory_used: count("used_memory"),
            appends: number("aof_enabled") == 1,
            saves: count("rdb_saves") > 0 || number("rdb_last_load_keys_loaded") > 0,
            can_write: is_well("aof_last_write_status") && is_well("rdb_last_bgsave_status"),
            time: micros.map(|micros| Timestamp::from_millis(micros.div_euclid(1_000))),
        }
    }
}

/// One text, or several by the addresses of those that answered.
struct Texts(Vec<(Option<String>, String)>);

impl FromRedisValue for Texts {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::Map(texts) = value else {
            return Ok(Self(vec![(None, String::from_redis_value(value)?)]));
        };
        let text = |(address, text)| {
            let address = String::from_redis_value(address)?;
            Ok((Some(address), String::from_redis_value(text)?))
        };
        Ok(Self(
            texts.into_iter().map(text).collect::<Result<_, ParsingError>>()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_read() {
        let text = "# Server\r\nredis_version:7.0.15\r\nserver_time_usec:1763782345678901\r\nrole:master\r\n\
            connected_slaves:2\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\nused_memory:900\r\n\
            aof_enabled:1\r\naof_last_write_status:err\r\nrdb_saves:0\r\n";
        let node = Node::read(text);
        assert_eq!(
            (node.version.as_str(), node.policy.as_str()),
            ("7.0.15", "allkeys-lru")
        );
        assert_eq!(
            (node.memory_limit, node.memory_used, node.replicas),
            (1_000, 900, 2)
        );
        assert!(node.is_master && node.appends && !node.saves && !node.can_write);
        assert_eq!(node.time, Some(Timestamp::from_millis(1_763_782_345_678)));
    }

    #[test]
    fn words_are_such_as_may_be_shown() {
        let node = Node::read(&format!(
            "redis_version:7\u{1b}[31m\nmaxmemory_policy:{}",
            "x".repeat(9_999)
        ));
        assert_eq!((node.version.as_str(), node.policy.len()), ("7[31m", 64));
    }

    #[test]
    fn what_is_not_told_is_nothing() {
        let node = Node::read("redis_version\n:::\nmaxmemory:many");
        assert_eq!(
            (node.version.as_str(), node.memory_limit, node.time),
            ("", 0, None)
        );
        assert!(node.can_write && !node.is_master);
    }
}
