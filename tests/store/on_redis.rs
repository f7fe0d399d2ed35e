//! Rows in Redis, on servers however they stand together.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::store::RedisStore;

use super::*;
use crate::redis_server::{RedisCluster, RedisSentinel, RedisServer, Shared};

#[path = "on_redis/fitness.rs"]
mod fitness;
#[cfg(feature = "redis-tls")]
#[path = "on_redis/rules.rs"]
mod rules;

/// What keys begin with; some users may use no other keys.
const PREFIX: &str = "shop";

static STORES: AtomicUsize = AtomicUsize::new(0);

/// Rows on real servers, which go with the last of the cases that run at the same time; each store's under a prefix of its
/// own. The clock is the servers'.
pub(super) struct Servers {
    url: String,
    shards: Option<u16>,
    _servers: Box<dyn Send + Sync>,
}

impl Servers {
    /// One server, on which rows are spread over so many shards.
    pub(super) fn one(shards: u16) -> Self {
        static SERVER: Shared<RedisServer> = Shared::new();
        let server = SERVER.get(RedisServer::start);
        Self {
            shards: Some(shards),
            ..Self::of(server.url(), server)
        }
    }

    pub(super) fn behind_sentinels() -> Self {
        static SERVERS: Shared<RedisSentinel> = Shared::new();
        let servers = SERVERS.get(RedisSentinel::start);
        Self::of(servers.url(), servers)
    }

    pub(super) fn in_a_cluster() -> Self {
        static CLUSTER: Shared<RedisCluster> = Shared::new();
        let cluster = CLUSTER.get(RedisCluster::start);
        Self::of(cluster.url(), cluster)
    }

    fn of(url: String, servers: impl Send + Sync + 'static) -> Self {
        Self {
            url,
            shards: None,
            _servers: Box::new(servers),
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl StoreFixture for Servers {
    async fn store(&self, history: Duration) -> Arc<dyn Store> {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let mut builder = RedisStore::builder(&self.url)
            .prefix(format!("{PREFIX}:{number}"))
            .keep_history(history);
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        let store = builder.build().expect("good settings");
        // To connect to six nodes over TLS may take longer than a call, on a slow machine.
        let checked = async {
            loop {
                match store.check().await {
                    Err(error) if error.is_transient() => {}
                    outcome => return outcome,
                }
            }
        };
        let checked = tokio::time::timeout(SAFETY, checked).await;
        checked.expect("in time").expect("the servers");
        Arc::new(store)
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Only so that a defect does not hang the tests.
const SAFETY: Duration = Duration::from_secs(300);

/// The client's own limit, after which a node of a Cluster counts as hanging, must not cut it off.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_write_waits_for_replicas_as_long_as_told() {
    let servers = Servers::in_a_cluster();
    let builder = RedisStore::builder(&servers.url)
        .prefix(format!("{PREFIX}:waiting"))
        .wait(2, Duration::from_millis(2_500));
    let scheduler = delayline::Scheduler::new(builder.build().expect("good settings"));
    let task = delayline::NewTask::new("order.cancel", &());
    let error = scheduler.schedule(task).await.expect_err("no two replicas");
    let said = format!("{error:?}");
    assert!(said.contains("of 2 replicas confirmed within 2.5s"), "{said}");
}
