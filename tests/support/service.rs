//! Runs a service with tables of its own beside the tasks, on each kind of database.
#![allow(dead_code, unused_imports)] // Not every test asks everything of it.

use std::future::Future;
use std::sync::Arc;

use delayline::store::{Store, Transaction};
use sqlx::AssertSqlSafe;

/// A service's database: its own table `effects (name)`, and the tasks.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// A transaction of the service's.
    type Tx: Send;

    /// Makes a new database, with both tables.
    fn new() -> impl Future<Output = Self> + Send;

    /// Opens the database at an address, as another process does.
    fn open(url: String) -> impl Future<Output = Self> + Send;

    /// Makes the service's own table.
    fn prepare(&self) -> impl Future<Output = ()> + Send;

    fn url(&self) -> &str;

    fn store(&self) -> Arc<dyn Store>;

    /// Opens another store on the same database, with as few connections as possible.
    fn narrow_store(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    fn begin(&self) -> impl Future<Output = Result<Self::Tx, sqlx::Error>> + Send;

    fn join<'t>(&'t self, tx: &'t mut Self::Tx) -> impl Transaction + 't;

    fn run(&self, tx: &mut Self::Tx, sql: String) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Reads the names of the effects, in order.
    fn effects(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Adds an effect within a transaction.
    fn effect(&self, tx: &mut Self::Tx, name: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        self.run(tx, format!("INSERT INTO effects (name) VALUES ('{name}')"))
    }
}

/// Implements a service for one driver: the code is the same for each of them.
macro_rules! service {
    ($name:ident, $database:ty, $store:ty, $pool:ident, begin: $begin:expr) => {
        #[derive(Clone)]
        pub(crate) struct $name {
            url: String,
            pool: $pool,
            store: $store,
            /// The folder of a file, which goes with the last of them.
            #[allow(dead_code)]
            folder: Option<Arc<tempfile::TempDir>>,
        }

        impl Service for $name {
            type Tx = sqlx::Transaction<'static, $database>;

            async fn new() -> Self {
                let (url, folder) = Self::fresh().await;
                let mut service = Self::open(url).await;
                service.folder = folder;
                service.prepare().await;
                service
            }

            async fn open(url: String) -> Self {
                let pool = Self::pool_of(&url).await;
                let store = Self::store_of(&url).await;
                let folder = None;
                Self {
                    url,
                    pool,
                    store,
                    folder,
                }
            }

            async fn prepare(&self) {
                self.migrate().await;
                let table = "CREATE TABLE effects (name VARCHAR(200) NOT NULL)";
                sqlx::query(table).execute(&self.pool).await.unwrap();
            }

            fn url(&self) -> &str {
                &self.url
            }

            fn store(&self) -> Arc<dyn Store> {
                Arc::new(self.store.clone())
            }

            async fn narrow_store(&self) -> Arc<dyn Store> {
                Arc::new(Self::narrow_store_of(&self.url).await)
            }

            async fn begin(&self) -> Result<Self::Tx, sqlx::Error> {
                $begin(&self.pool).await
            }

            fn join<'t>(&'t self, tx: &'t mut Self::Tx) -> impl Transaction + 't {
                self.store.join(tx)
            }

            async fn run(&self, tx: &mut Self::Tx, sql: String) -> Result<(), sqlx::Error> {
                sqlx::query(AssertSqlSafe(sql)).execute(&mut **tx).await?;
                Ok(())
            }

            async fn commit(&self, tx: Self::Tx) -> Result<(), sqlx::Error> {
                tx.commit().await
            }

            async fn effects(&self) -> Vec<String> {
                let names = sqlx::query_scalar("SELECT name FROM effects ORDER BY name");
                names.fetch_all(&self.pool).await.unwrap()
            }
        }
    };
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use delayline::store::SqliteStore;
    use sqlx::Connection;
    use sqlx::sqlite::{Sqlite, SqlitePool, SqlitePoolOptions};

    use super::*;

    service!(OnSqlite, Sqlite, SqliteStore, SqlitePool, begin: |pool: &SqlitePool| {
        let pool = pool.clone();
        async move { pool.begin_with("BEGIN IMMEDIATE").await }
    });

    impl OnSqlite {
        async fn fresh() -> (String, Option<Arc<tempfile::TempDir>>) {
            let folder = tempfile::tempdir().unwrap();
            let url = folder.path().join("service.db").display().to_string();
            (url, Some(Arc::new(folder)))
        }

        async fn pool_of(path: &str) -> SqlitePool {
            let options = sqlx::sqlite::SqliteConnectOptions::new()
                .filename(path)
                .busy_timeout(std::time::Duration::from_secs(60))
                .create_if_missing(true);
            SqlitePoolOptions::new()
                // On a full disk SQLite ends a transaction by itself, and sqlx does not notice.
                .before_acquire(|connection, _| {
                    let is_free = !connection.is_in_transaction();
                    Box::pin(async move { Ok(is_free) })
                })
                .connect_with(options)
                .await
                .unwrap()
        }

        async fn store_of(path: &str) -> SqliteStore {
            SqliteStore::open(path).await.unwrap()
        }

        /// It always has one for writing.
        async fn narrow_store_of(path: &str) -> SqliteStore {
            Self::store_of(path).await
        }

        async fn migrate(&self) {}
    }
}
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::OnSqlite;

#[cfg(feature = "postgres")]
mod postgres {
    use delayline::store::PostgresStore;
    use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};

    use super::super::database::Database;
    use super::*;

    service!(OnPostgres, Postgres, PostgresStore, PgPool, begin: |pool: &PgPool| {
        let pool = pool.clone();
        async move { pool.begin().await }
    });

    impl OnPostgres {
        async fn fresh() -> (String, Option<Arc<tempfile::TempDir>>) {
            (Database::Postgres.fresh().await, None)
        }

        async fn pool_of(url: &str) -> PgPool {
            PgPoolOptions::new()
                .max_connections(16)
                // So that a service gets rid of connections that have become read-only.
                .max_lifetime(std::time::Duration::from_secs(10))
                .connect_lazy(url)
                .unwrap()
        }

        async fn store_of(url: &str) -> PostgresStore {
            PostgresStore::connect(url).await.unwrap()
        }

        async fn narrow_store_of(url: &str) -> PostgresStore {
            let builder = PostgresStore::builder(url.parse().unwrap());
            builder.connections(1).connect().await.unwrap()
        }

        async fn migrate(&self) {
            self.store.migrate().await.unwrap();
        }
    }
}
#[cfg(feature = "postgres")]
pub(crate) use postgres::OnPostgres;

#[cfg(feature = "mysql")]
mod mysql {
    use delayline::store::MySqlStore;
    use sqlx::mysql::{MySql, MySqlPool, MySqlPoolOptions};

    use super::super::database::Database;
    use super::*;

    service!(OnMySql, MySql, MySqlStore, MySqlPool, begin: |pool: &MySqlPool| {
        let pool = pool.clone();
        async move { pool.begin().await }
    });

    impl OnMySql {
        async fn fresh() -> (String, Option<Arc<tempfile::TempDir>>) {
            (Database::MariaDb.fresh().await, None)
        }

        async fn pool_of(url: &str) -> MySqlPool {
            MySqlPoolOptions::new()
                .max_connections(16)
                // So that a service gets rid of connections that have become read-only.
                .max_lifetime(std::time::Duration::from_secs(10))
                .connect_lazy(url)
                .unwrap()
        }

        async fn store_of(url: &str) -> MySqlStore {
            MySqlStore::connect(url).await.unwrap()
        }

        async fn narrow_store_of(url: &str) -> MySqlStore {
            let builder = MySqlStore::builder(url.parse().unwrap());
            builder.connections(1).connect().await.unwrap()
        }

        async fn migrate(&self) {
            self.store.migrate().await.unwrap();
        }
    }
}
#[cfg(feature = "mysql")]
pub(crate) use mysql::OnMySql;
