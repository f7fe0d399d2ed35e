//! The table, by its contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::redis_server::{RedisCluster, RedisServer, Shared};
use crate::store::RedisStore;
use crate::store::redis::table::RedisTable;
use crate::store::table::Table;
use crate::testing::table::{TableFixture, table_conformance};

static TABLES: AtomicUsize = AtomicUsize::new(0);

/// Servers, which go with the last of the cases that run at the same time; each table under a prefix of its own.
struct Servers {
    url: String,
    shards: u16,
    _servers: Box<dyn Send + Sync>,
}

impl Servers {
    fn one(shards: u16) -> Self {
        static SERVER: Shared<RedisServer> = Shared::new();
        let server = SERVER.get(RedisServer::start);
        Self {
            url: server.url(),
            shards,
            _servers: Box::new(server),
        }
    }

    fn in_a_cluster() -> Self {
        static CLUSTER: Shared<RedisCluster> = Shared::new();
        let cluster = CLUSTER.get(RedisCluster::start);
        Self {
            url: cluster.url(),
            shards: 64,
            _servers: Box::new(cluster),
        }
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Servers")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl TableFixture for Servers {
    async fn table(&self) -> Arc<dyn Table> {
        let number = TABLES.fetch_add(1, Ordering::Relaxed);
        let builder = RedisStore::builder(&self.url).prefix(format!("table:{number}"));
        let store = builder.shards(self.shards).build().expect("good settings");
        Arc::new(RedisTable(store.database))
    }
}

table_conformance!(table, Servers::one(1));
table_conformance!(table_in_shards, Servers::one(16));
table_conformance!(table_in_a_cluster, Servers::in_a_cluster());
