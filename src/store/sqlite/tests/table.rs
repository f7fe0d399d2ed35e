//! The table in a file, by its contract.

use std::sync::Arc;

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

/// A file in a folder that is removed afterwards. No row of it can be locked: SQLite locks whole files.
#[derive(Debug)]
struct File {
    folder: TempDir,
    /// Whether a later release has added a column.
    is_wider: bool,
}

impl File {
    fn new(is_wider: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, is_wider }
    }
}

#[async_trait]
impl TableFixture for File {
    async fn table(&self) -> Arc<dyn Table> {
        let path = self.folder.path().join("tasks.db");
        let store = SqliteStore::open(&path).await.unwrap();
        if self.is_wider {
            let options = SqliteConnectOptions::new().filename(&path);
            let mut other = options.connect().await.unwrap();
            run(&mut other, "ALTER TABLE delayline_tasks ADD COLUMN later TEXT").await;
        }
        Arc::new(SqlTable(OwnSession(store.file)))
    }
}

table_conformance!(table, File::new(false));
table_conformance!(a_wider_table, File::new(true));
