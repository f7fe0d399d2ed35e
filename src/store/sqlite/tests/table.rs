//! The table in a file, by its contract.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;

use super::super::FileTable;
use crate::store::SqliteStore;
use crate::store::table::Table;
use crate::testing::table::{TableFixture, table_conformance};

/// A file in a folder that is removed afterwards. No row of it can be locked: SQLite locks whole files.
#[derive(Debug)]
struct File {
    folder: TempDir,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }
}

#[async_trait]
impl TableFixture for File {
    async fn table(&self) -> Arc<dyn Table> {
        let store = SqliteStore::open(self.folder.path().join("tasks.db"))
            .await
            .unwrap();
        Arc::new(FileTable(store.file))
    }
}

table_conformance!(table, File::new());
