//! Tests the contract of `Backend`, on servers in every arrangement.

use async_trait::async_trait;
use delayline::backend_conformance;
use delayline::testing::backend::BackendFixture;

#[cfg(feature = "redis-tls")]
use super::security::{BEHIND_SENTINELS, CLUSTERED, PREFIX, SINGLE, rules, trusting};
#[cfg(feature = "redis-tls")]
use super::support::RedisTlsServer;
use super::support::{RedisCluster, RedisSentinel, Shared};
use super::*;

#[cfg(not(feature = "redis-tls"))]
const PREFIX: &str = "shop";

/// Backends of one prefix, on a server of their own or on shared ones.
struct Redis {
    url: String,
    prefix: String,
    shards: Option<u16>,
    _servers: Box<dyn Send + Sync>,
}

impl Redis {
    fn start() -> Self {
        Self::in_shards(1)
    }

    fn in_shards(shards: u16) -> Self {
        let server = RedisServer::start();
        Self {
            shards: Some(shards),
            ..Self::of(server.url(), server)
        }
    }

    #[cfg(feature = "redis-tls")]
    fn over_tls() -> Self {
        let server = RedisTlsServer::start(&rules(PREFIX, SINGLE));
        let url = trusting(&server.url(), &server.ca());
        Self {
            prefix: PREFIX.into(),
            ..Self::of(url, server)
        }
    }

    fn behind_sentinels() -> Self {
        static SERVERS: Shared<RedisSentinel> = Shared::new();
        let servers = SERVERS.get(RedisSentinel::start);
        Self::of(servers.url(), servers)
    }

    #[cfg(feature = "redis-tls")]
    fn behind_sentinels_over_tls() -> Self {
        static SERVERS: Shared<RedisSentinel> = Shared::new();
        let rules = rules(PREFIX, &format!("{SINGLE} {BEHIND_SENTINELS}"));
        let servers = SERVERS.get(|| RedisSentinel::start_with_tls(&rules));
        let url = trusting(&servers.url(), &servers.ca());
        Self::of(url, servers)
    }

    fn in_a_cluster() -> Self {
        static CLUSTER: Shared<RedisCluster> = Shared::new();
        let cluster = CLUSTER.get(RedisCluster::start);
        Self::of(cluster.url(), cluster)
    }

    #[cfg(feature = "redis-tls")]
    fn in_a_cluster_over_tls() -> Self {
        static CLUSTER: Shared<RedisCluster> = Shared::new();
        // The prefix of each case begins with this one, under which the user may do anything.
        let cluster = CLUSTER.get(|| RedisCluster::start_with_tls(&rules(PREFIX, CLUSTERED)));
        let url = trusting(&cluster.url(), &cluster.ca());
        Self::of(url, cluster)
    }

    /// With a unique prefix.
    fn of(url: String, servers: impl Send + Sync + 'static) -> Self {
        Self {
            url,
            prefix: format!("{PREFIX}:{:016x}", fastrand::u64(..)),
            shards: None,
            _servers: Box::new(servers),
        }
    }

    async fn connect(&self) -> Arc<dyn Backend> {
        let mut builder = RedisBackend::builder(&self.url).prefix(&self.prefix).lease(LEASE);
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        let backend = builder.build().unwrap();
        // To connect to six nodes over TLS may take longer than a call, on a slow machine.
        safely(async { while backend.health().await.is_err() {} }).await;
        Arc::new(backend)
    }
}

/// Long enough for a slow machine to acknowledge in, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

#[async_trait]
impl BackendFixture for Redis {
    async fn open(&self) -> Arc<dyn Backend> {
        self.connect().await
    }

    async fn open_again(&self) -> Option<Arc<dyn Backend>> {
        Some(self.connect().await)
    }

    fn shortest_delay(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }
}

backend_conformance!(redis, Redis::start());
backend_conformance!(redis_in_shards, Redis::in_shards(16));
backend_conformance!(
    redis_in_threads,
    Redis::start(),
    flavor = "multi_thread",
    worker_threads = 2
);
backend_conformance!(redis_sentinel, Redis::behind_sentinels());
backend_conformance!(redis_cluster, Redis::in_a_cluster());
#[cfg(feature = "redis-tls")]
backend_conformance!(redis_over_tls, Redis::over_tls());
#[cfg(feature = "redis-tls")]
backend_conformance!(redis_sentinel_over_tls, Redis::behind_sentinels_over_tls());
#[cfg(feature = "redis-tls")]
backend_conformance!(redis_cluster_over_tls, Redis::in_a_cluster_over_tls());
