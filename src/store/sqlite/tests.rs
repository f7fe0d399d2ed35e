//! What is special to rows in a file: opening it, sharing it, its statements. The rest is in the conformance suite.

#![allow(clippy::unwrap_used)]

mod corrupt;
mod faults;
mod locks;
mod open;
mod plans;
mod rows;
#[cfg(feature = "testing")]
mod table;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use super::SqliteStore;
use crate::backend::Wake;
use crate::store::{Change, Claim, Expect, NewRow, Store, Target, Verb, When};
use crate::{Answer, Error, Kind, Scheduled, Task, TaskId};

const LEASE: Duration = Duration::from_secs(30);

/// A file of its own, and the store in it.
struct Fixture {
    folder: TempDir,
    store: SqliteStore,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("tasks.db")).await.unwrap();
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }

    /// A store in the same file that keeps no history.
    async fn without_history(&self) -> SqliteStore {
        let store = SqliteStore::builder(self.path()).keep_history(Duration::ZERO);
        store.open().await.unwrap()
    }

    /// A connection of somebody else's to the same file.
    async fn foreign(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path());
        options.connect().await.unwrap()
    }

    /// Inserts rows, of which none may be refused.
    async fn insert(&self, rows: Vec<NewRow>) -> Vec<Scheduled> {
        each(self.store.insert(rows).await.unwrap().found)
    }

    /// Changes rows, of which none may be refused.
    async fn change(&self, changes: Vec<Change>) -> Vec<Answer> {
        each(self.store.change(changes).await.unwrap().found)
    }

    async fn find(&self, id: TaskId) -> Task {
        self.store.find(&id.into()).await.unwrap().unwrap()
    }
}

fn each<T>(answers: Vec<Result<T, Error>>) -> Vec<T> {
    answers.into_iter().map(Result::unwrap).collect()
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
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

fn change(target: impl Into<Target>, verb: Verb) -> Change {
    Change {
        target: target.into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    }
}

/// For as long as a broken test may hang.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}
