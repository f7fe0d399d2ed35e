//! The table on a server, by its contract.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::OnceCell;

use super::super::PostgresStore;
use super::super::executor::OwnExecutor;
use super::super::session::PgSession;
use super::{Connection as _, Database, run};
use crate::TaskId;
use crate::store::sql::SqlTable;
use crate::store::table::Table;
use crate::testing::table::{TableFixture, table_conformance};

/// One database for all cases, which goes with the server.
static URL: OnceCell<String> = OnceCell::const_new();
static TABLES: AtomicUsize = AtomicUsize::new(0);

/// A table of a case's own.
#[derive(Debug)]
struct Server {
    table: Mutex<String>,
    /// Whether a later release has added a column.
    is_wider: bool,
}

impl Server {
    fn new(is_wider: bool) -> Self {
        let table = Mutex::default();
        Self { table, is_wider }
    }

    async fn options() -> PgConnectOptions {
        let url = URL.get_or_init(|| Database::Postgres.fresh()).await;
        url.parse().unwrap()
    }
}

#[async_trait]
impl TableFixture for Server {
    async fn table(&self) -> Arc<dyn Table> {
        let name = format!("tasks_{}", TABLES.fetch_add(1, Ordering::Relaxed));
        let builder = PostgresStore::builder(Self::options().await).table(&name);
        let store = builder.connect().await.unwrap();
        store.migrate().await.unwrap();
        if self.is_wider {
            let mut other = PgConnection::connect_with(&Self::options().await).await.unwrap();
            run(&mut other, &format!("ALTER TABLE {name} ADD COLUMN later TEXT")).await;
        }
        *self.table.lock().unwrap() = name;
        Arc::new(SqlTable(PgSession(OwnExecutor::new(&store.database, false))))
    }

    async fn lock(&self, id: TaskId) -> Option<Box<dyn Send>> {
        let mut other = PgConnection::connect_with(&Self::options().await).await.unwrap();
        let id = uuid::Uuid::from_bytes(*id.as_bytes());
        let table = self.table.lock().unwrap().clone();
        run(
            &mut other,
            &format!("BEGIN; SELECT 1 FROM {table} WHERE id = '{id}' FOR UPDATE"),
        )
        .await;
        Some(Box::new(other))
    }
}

table_conformance!(table, Server::new(false));
table_conformance!(a_wider_table, Server::new(true));
