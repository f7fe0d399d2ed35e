//! The table in a file, by its contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::super::session::OwnSession;
use super::run;
use crate::store::SqliteStore;
use crate::store::sql::SqlTable;
use crate::store::table::Table;
use crate::testing::table::{TableFixture, table_conformance};

/// Files in a folder that is removed afterwards. No row of one can be locked: SQLite locks whole files.
#[derive(Debug)]
struct Files {
    folder: TempDir,
    count: AtomicUsize,
    /// Whether a later release has added a column.
    is_wider: bool,
}

impl Files {
    fn new(is_wider: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let count = AtomicUsize::new(0);
        Self {
            folder,
            count,
            is_wider,
        }
    }
}

#[async_trait]
impl TableFixture for Files {
    async fn table(&self) -> Arc<dyn Table> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("tasks-{number}.db"));
        let store = SqliteStore::open(&path).await.unwrap();
        if self.is_wider {
            let options = SqliteConnectOptions::new().filename(&path);
            let mut other = options.connect().await.unwrap();
            run(&mut other, "ALTER TABLE delayline_tasks ADD COLUMN later TEXT").await;
        }
        Arc::new(SqlTable(OwnSession(store.file)))
    }
}

table_conformance!(table, Files::new(false));
table_conformance!(a_wider_table, Files::new(true));
