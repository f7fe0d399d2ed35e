//! Holds the settings of a backend.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::{MAX_LEASE, MIN_LEASE, PREFIX, RedisBackend, shards};
use crate::redis::{Address, Link, Role, check_prefix};
use crate::{Error, defaults};

/// Makes a [`RedisBackend`].
#[must_use]
#[derive(Clone)]
pub struct RedisBackendBuilder {
    url: String,
    prefix: String,
    shards: Option<u16>,
    lease: Duration,
}

impl RedisBackendBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: PREFIX.to_owned(),
            shards: None,
            lease: defaults::LEASE,
        }
    }

    /// Keeps everything under `{PREFIX:wakes}:…` and, of each shard, `{PREFIX:wakes:N}:…`; the default prefix is
    /// `delayline`. Services that share a server and a prefix share wake-ups.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets over how many shards wake-ups are spread, 1 to 1024; default 1, in a Cluster 16.
    ///
    /// The number is fixed when the prefix is first used, and kept in Redis. Without this call, the kept number is
    /// used. With it another number is refused: sending and receiving fail with [`Error::Invalid`], which names both.
    /// To change it, choose another prefix, and have it filled by `delayline redis rebuild`.
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets for how long a received wake-up may stay unacknowledged before it comes again, 10 ms up to a day; default
    /// 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Makes the backend, which connects when it is first needed. Fails if a setting cannot be used.
    pub fn build(self) -> Result<RedisBackend, Error> {
        check_prefix(&self.prefix)?;
        self.shards.map_or(Ok(()), shards::check)?;
        if !(MIN_LEASE..=MAX_LEASE).contains(&self.lease) {
            let value = format!("{:?}", self.lease);
            return Err(Error::invalid("redis lease", value, "allowed are 10 ms to 1 day"));
        }
        let address = Address::parse(&self.url)?;
        Ok(RedisBackend {
            link: Arc::new(Link::new(address, Role::Backend, defaults::SEND_TIMEOUT)),
            prefix: self.prefix,
            shards: self.shards,
            lease: self.lease,
            parts: OnceLock::new(),
            inbox: Arc::default(),
            foreign: Arc::default(),
            consumer: Mutex::default(),
        })
    }
}

impl fmt::Debug for RedisBackendBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which may hold a password.
        f.debug_struct("RedisBackendBuilder")
            .field("prefix", &self.prefix)
            .field("shards", &self.shards)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
