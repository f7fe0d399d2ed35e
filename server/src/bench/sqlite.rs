//! Measures SQLite, in a file of the run's own beside the one that is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use delayline::store::{SqliteStore, Store};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use uuid::Uuid;

use super::Error;
use super::side::{Item, KIND, PAYLOAD, Place, Side, Verb, id};
use crate::Failure;
use crate::database::Address;

super::sql::bare!(
    sqlx::Sqlite,
    " WHERE state IN (0, 1) AND state + 0 = 0 AND kind = 'bench' AND name = ",
    " WHERE state IN (0, 1) AND state + 0 = 0 AND kind = 'bench' AND name IN (",
    ")",
    true
);

/// A folder.
pub(crate) struct Sqlite(PathBuf);

impl Sqlite {
    /// Uses the folder of the named file: what matters is the disk.
    pub(crate) fn beside(address: &Address) -> Result<Self, Failure> {
        let file = address.file()?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        match folder.is_dir() {
            true => Ok(Self(folder.to_owned())),
            false => Err(address.not_a("a file in a folder that is there")),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.db"))
    }
}

#[async_trait]
impl Place for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn store(&self, name: &str) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(SqliteStore::open(self.file(name)).await?))
    }

    async fn bare(&self, name: &str) -> Result<Arc<dyn Side>, Error> {
        let options = SqliteConnectOptions::new()
            .filename(self.file(name))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        // One connection, as SQLite has one writer: more would only wait for its lock.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options)
            .await?;
        let create = format!(
            "CREATE TABLE {name} (id BLOB PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, state INTEGER NOT NULL,
                due_at INTEGER NOT NULL, wake_at INTEGER NOT NULL, payload BLOB NOT NULL);
            CREATE INDEX {name}_wake ON {name} (state, wake_at);
            CREATE UNIQUE INDEX {name}_live ON {name} (kind, name) WHERE state IN (0, 1);"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await?;
        let table = name.to_owned();
        Ok(Arc::new(Bare { pool, table }))
    }

    async fn clean(&self, prefix: &str) -> Result<(), Error> {
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            // With the files that SQLite keeps beside it, of which it removes some itself.
            if entry.file_name().to_string_lossy().starts_with(prefix)
                && let Err(error) = std::fs::remove_file(entry.path())
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(error.into());
            }
        }
        Ok(())
    }
}
