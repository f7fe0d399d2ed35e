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

use std::path::PathBuf;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use super::SqliteStore;
use crate::store::sql::tests::rows::{LEASE, change, claim, due_rows, id, in_time, new_row, wakes};
use crate::store::{Change, NewRow, Store};
use crate::{Answer, Error, Scheduled, Task, TaskId};

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

    /// Another connection to the same file.
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
