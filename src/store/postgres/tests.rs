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

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{PostgresBuilder, PostgresStore};
use crate::backend::Wake;
use crate::store::database::Database;
use crate::store::{Change, Claim, Ending, Expect, NewRow, Renewal, Step, Store, Sweep, Target, Verb, When};
use crate::{Kind, Task, TaskId};

const LEASE: Duration = Duration::from_secs(30);

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

    /// A connection of somebody else's to the same database.
    async fn foreign(&self) -> PgConnection {
        PgConnection::connect_with(&self.options).await.unwrap()
    }

    async fn find(&self, id: TaskId) -> Task {
        self.store.find(&id.into()).await.unwrap().unwrap()
    }

    /// Waits until no other session of this database waits for a lock.
    async fn nobody_waits(&self) {
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

fn id(number: usize) -> TaskId {
    TaskId::from_bytes((number as u128).to_be_bytes())
}

fn new_row(number: usize, due: Duration) -> NewRow {
    NewRow {
        id: id(number),
        kind: "k".into(),
        key: None,
        payload: vec![0, 1, 255],
        headers: BTreeMap::new(),
        due: When::After(due),
        look_in: due,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

fn due_rows(numbers: impl IntoIterator<Item = usize>) -> Vec<NewRow> {
    let row = |number| new_row(number, Duration::ZERO);
    numbers.into_iter().map(row).collect()
}

fn wakes(numbers: impl IntoIterator<Item = usize>) -> Vec<Wake> {
    let wake = |number| Wake {
        id: id(number),
        kind: "k".into(),
        version: 1,
    };
    numbers.into_iter().map(wake).collect()
}

fn claim(room: usize) -> Claim {
    Claim {
        owner: Arc::from("me"),
        lease: LEASE,
        room: [(Kind::from("k"), room)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

fn sweep() -> Sweep {
    Sweep {
        limit: 100,
        retake: LEASE,
        ahead: None,
    }
}

fn change(target: impl Into<Target>, verb: Verb) -> Change {
    Change {
        target: target.into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    }
}

/// A claim to renew, not started.
fn held(id: TaskId, version: u64) -> Renewal {
    Renewal {
        id,
        version,
        started: false,
    }
}

fn done(number: usize, version: u64) -> Step {
    Step::end(id(number), version, Ending::Done)
}

/// For as long as a broken test may hang.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}
