//! What is special to rows in a PostgreSQL database: its schema, transactions, locks and plans. The rest is in the
//! conformance suite.

#![allow(clippy::unwrap_used)]

mod connect;
mod corrupt;
mod leases;
mod locks;
mod notify;
mod other_transactions;
mod plans;
mod rows;
mod schema;
mod silence;
#[cfg(feature = "testing")]
mod table;
mod transactions;

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{PostgresBuilder, PostgresStore};
use crate::store::database::Database;
use crate::store::sql::tests::rows::{
    LEASE, change, claim, done, due_rows, held, id, in_time, new_row, wakes,
};
use crate::store::{Store, Sweep};
use crate::{Task, TaskId};

/// A database of its own, and a store in it.
struct Fixture {
    options: PgConnectOptions,
    store: PostgresStore,
}

impl Fixture {
    async fn new() -> Self {
        let url = Database::Postgres.fresh().await;
        let options: PgConnectOptions = url.parse().unwrap();
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        Self { options, store }
    }

    fn builder(&self) -> PostgresBuilder {
        PostgresStore::builder(self.options.clone())
    }

    /// A store in the same table that keeps no history.
    async fn without_history(&self) -> PostgresStore {
        let store = self.builder().keep_history(Duration::ZERO);
        store.connect().await.unwrap()
    }

    /// Another connection to the same database.
    async fn foreign(&self) -> PgConnection {
        PgConnection::connect_with(&self.options).await.unwrap()
    }

    async fn find(&self, id: TaskId) -> Task {
        self.store.find(&id.into()).await.unwrap().unwrap()
    }

    /// Waits until no other session of this database waits for a lock.
    async fn no_session_waits(&self) {
        let mut connection = self.foreign().await;
        while waiting(&mut connection).await > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// How many sessions of this database wait for a lock.
async fn waiting(connection: &mut PgConnection) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    sqlx::query_scalar(count).fetch_one(connection).await.unwrap()
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .unwrap();
}

/// Begins a transaction that has these rows locked.
async fn lock(connection: &mut PgConnection, numbers: &[usize]) {
    run(connection, "BEGIN").await;
    let ids = numbers
        .iter()
        .map(|&number| uuid::Uuid::from_bytes(*id(number).as_bytes()));
    sqlx::query("SELECT 1 FROM delayline_tasks WHERE id = ANY($1) FOR UPDATE")
        .bind(ids.collect::<Vec<_>>())
        .execute(connection)
        .await
        .unwrap();
}

fn sweep() -> Sweep {
    Sweep {
        limit: 100,
        retake: LEASE,
        ahead: None,
    }
}
