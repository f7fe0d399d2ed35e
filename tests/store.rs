//! Holds each store of this crate to the contract of `Store`. One line per store: its name and its fixture.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "store/crowded.rs"]
mod crowded;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "support/database.rs"]
mod database;
#[cfg(all(feature = "postgres", feature = "mysql"))]
#[path = "store/hostile.rs"]
mod hostile;
#[cfg(all(feature = "postgres", feature = "mysql"))]
#[path = "support/hostile.rs"]
mod hostile_settings;
#[cfg(feature = "redis")]
#[path = "support/logged.rs"]
mod logged;
#[cfg(feature = "redis")]
#[path = "store/on_redis.rs"]
mod on_redis;
#[cfg(all(feature = "postgres", feature = "mysql"))]
#[path = "support/pgbouncer.rs"]
mod pgbouncer;
#[cfg(feature = "redis")]
#[path = "support/redis/mod.rs"]
mod redis_server;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline::clock::Clock;
use delayline::store::{MemoryStore, Store};
use delayline::testing::store::StoreFixture;
use delayline::testing::store_conformance;

store_conformance!(memory, Memory::new());
#[cfg(feature = "sqlite")]
store_conformance!(sqlite, files::Sqlite::new());
#[cfg(feature = "postgres")]
store_conformance!(postgres, on_postgres::Server);
#[cfg(feature = "mysql")]
store_conformance!(mysql, on_mysql::Server);
#[cfg(feature = "redis")]
store_conformance!(redis, on_redis::Servers::one(1));
#[cfg(feature = "redis")]
store_conformance!(redis_in_shards, on_redis::Servers::one(16));
#[cfg(feature = "redis")]
store_conformance!(redis_sentinel, on_redis::Servers::behind_sentinels());
#[cfg(feature = "redis")]
store_conformance!(redis_cluster, on_redis::Servers::in_a_cluster());
#[cfg(feature = "redis-tls")]
store_conformance!(tls_redis, on_redis::Servers::over_tls());
#[cfg(feature = "redis-tls")]
store_conformance!(tls_redis_sentinel, on_redis::Servers::behind_sentinels_over_tls());
#[cfg(feature = "redis-tls")]
store_conformance!(tls_redis_cluster, on_redis::Servers::in_a_cluster_over_tls());

#[derive(Debug)]
struct Memory {
    clock: Clock,
}

impl Memory {
    fn new() -> Self {
        let clock = Clock::simulated(7);
        Self { clock }
    }
}

#[async_trait]
impl StoreFixture for Memory {
    async fn store(&self, history: Duration) -> Arc<dyn Store> {
        Arc::new(MemoryStore::with_clock(self.clock.clone()).keep_history(history))
    }

    async fn pass(&self, time: Duration) {
        let millis = time.as_millis().try_into().expect("cases wait for short");
        self.clock.step(millis);
    }
}

#[cfg(feature = "sqlite")]
mod files {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use delayline::store::SqliteStore;
    use tempfile::TempDir;

    use super::*;

    /// Rows in files of a folder that is removed afterwards. Connections have threads of their own, which a paused clock
    /// knows nothing of, so the clock is the machine's.
    #[derive(Debug)]
    pub(super) struct Sqlite {
        folder: TempDir,
        files: AtomicUsize,
        clock: Clock,
    }

    impl Sqlite {
        pub(super) fn new() -> Self {
            Self {
                folder: tempfile::tempdir().expect("a folder for temporary files"),
                files: AtomicUsize::new(0),
                clock: Clock::system(),
            }
        }
    }

    #[async_trait]
    impl StoreFixture for Sqlite {
        async fn store(&self, history: Duration) -> Arc<dyn Store> {
            let number = self.files.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.path().join(format!("{number}.db"));
            let store = SqliteStore::builder(path)
                .clock(self.clock.clone())
                .keep_history(history);
            Arc::new(store.open().await.expect("a new file"))
        }

        async fn pass(&self, time: Duration) {
            let millis = time.as_millis().try_into().expect("cases wait for short");
            self.clock.step(millis);
        }
    }
}

/// Rows in tables of a real server, each store's in its own. The clock is the server's.
macro_rules! on_server {
    ($name:ident, $feature:literal, $store:ident, $options:ty, $database:ident) => {
        #[cfg(feature = $feature)]
        mod $name {
            use std::sync::atomic::{AtomicUsize, Ordering};

            use delayline::store::$store;
            use tokio::sync::OnceCell;

            use super::*;
            use crate::database::Database;

            /// One database for this process, which goes with the server.
            static URL: OnceCell<String> = OnceCell::const_new();
            static TABLES: AtomicUsize = AtomicUsize::new(0);

            #[derive(Debug)]
            pub(super) struct Server;

            #[async_trait]
            impl StoreFixture for Server {
                async fn store(&self, history: Duration) -> Arc<dyn Store> {
                    let url = URL.get_or_init(|| Database::$database.fresh()).await;
                    let options: $options = url.parse().expect("the server's URL");
                    let number = TABLES.fetch_add(1, Ordering::Relaxed);
                    let store = $store::builder(options)
                        .table(format!("tasks_{number}"))
                        .keep_history(history)
                        .connect()
                        .await
                        .expect("the shared server");
                    store.migrate().await.expect("a new table");
                    store.check().await.expect("the schema");
                    Arc::new(store)
                }

                async fn pass(&self, time: Duration) {
                    tokio::time::sleep(time).await;
                }
            }
        }
    };
}

on_server!(
    on_postgres,
    "postgres",
    PostgresStore,
    sqlx::postgres::PgConnectOptions,
    Postgres
);
on_server!(
    on_mysql,
    "mysql",
    MySqlStore,
    sqlx::mysql::MySqlConnectOptions,
    MariaDb
);
