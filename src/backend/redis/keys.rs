//! Every name under which anything is kept in Redis.

use crate::Error;

/// The names, all under one hash tag, so that in a Redis Cluster they are in one slot.
#[derive(Debug)]
pub(super) struct Keys {
    /// A ZSET: wake-ups that are held, by when they are due (ms, the server's clock).
    pub(super) due: String,
    /// A ZSET: wake-ups that were received and not acknowledged yet, by when their lease ends.
    pub(super) leased: String,
    /// A channel: says in how many ms the new head is due, when it is earlier than the head before.
    pub(super) earlier: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, database: i64) -> Result<Self, Error> {
        let fits = (1..=100).contains(&prefix.len());
        if !fits || prefix.chars().any(|c| c.is_control() || c == '{' || c == '}') {
            return Err(Error::invalid(
                "redis key prefix",
                prefix,
                "allowed are 1 to 100 bytes without braces and control characters",
            ));
        }
        Ok(Self {
            due: format!("{{{prefix}}}:due"),
            leased: format!("{{{prefix}}}:leased"),
            // Channels are shared by all databases of a server.
            earlier: format!("{{{prefix}}}:earlier:{database}"),
        })
    }
}
