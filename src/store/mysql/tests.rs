//! What is special to rows on a MySQL server: its schema, locks, transactions, plans. The rest is in the conformance
//! suite.

#![allow(clippy::unwrap_used)]

mod corrupt;
mod leases;
mod locks;
mod other_transactions;
mod plans;
mod rows;
mod schema;
mod server;
mod silence;
#[cfg(feature = "testing")]
mod table;
mod transactions;

use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySqlConnection};

use super::MySqlStore;
use crate::Task;
use crate::store::database::Database;
use crate::store::sql::tests::each::Each;
use crate::store::sql::tests::rows::{LEASE, change, claim, due_rows, held, id, in_time, new_row, wakes};
use crate::store::{Ending, NewRow, Step, Store};

/// A database of a test's own, and the store in it.
struct Fixture {
    url: String,
    store: MySqlStore,
}

impl Fixture {
    async fn new() -> Self {
        let empty = Self::empty().await;
        empty.store.migrate().await.unwrap();
        empty
    }

    /// Without the tables.
    async fn empty() -> Self {
        let url = Database::MariaDb.fresh().await;
        let store = MySqlStore::connect(&url).await.unwrap();
        Self { url, store }
    }

    /// A store in the same table that keeps no history.
    async fn without_history(&self) -> MySqlStore {
        let store = MySqlStore::builder(self.url.parse().unwrap()).keep_history(Duration::ZERO);
        store.connect().await.unwrap()
    }

    /// Another connection to the same database, with the server's settings.
    async fn foreign(&self) -> MySqlConnection {
        let options: MySqlConnectOptions = self.url.parse().unwrap();
        options.connect().await.unwrap()
    }

    /// One that has begun a transaction, as many services do.
    async fn service(&self, isolation: &str) -> MySqlConnection {
        let mut service = self.foreign().await;
        let isolation = format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}");
        run(&mut service, &isolation).await;
        run(&mut service, "START TRANSACTION").await;
        service
    }

    async fn find(&self, number: usize) -> Task {
        self.store.find(&id(number).into()).await.unwrap().unwrap()
    }

    async fn insert(&self, rows: Vec<NewRow>) {
        self.store.insert_all(rows).await.unwrap();
    }

    /// Rows that are due, and claimed.
    async fn running(&self, numbers: std::ops::Range<usize>) -> Vec<Task> {
        self.insert(due_rows(numbers.clone())).await;
        let looked = self.store.arrive(&wakes(numbers), &claim(1_000)).await.unwrap();
        looked.found.claimed
    }
}

/// Both isolation levels that services use.
const LEVELS: [&str; 2] = ["READ COMMITTED", "REPEATABLE READ"];

async fn run(connection: &mut MySqlConnection, sql: &str) {
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

/// The row of a number, as a condition.
fn is(number: usize) -> String {
    format!("id = UNHEX('{number:032x}')")
}

fn named(number: usize, key: &str) -> NewRow {
    NewRow {
        key: Some(key.into()),
        ..new_row(number, Duration::ZERO)
    }
}

fn settlement(number: usize, version: u64, ending: Ending) -> Step {
    Step::end(id(number), version, ending)
}
