//! A file of SQLite.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::Place;
use super::space::Space;
use crate::fault::Harm;

pub(crate) struct Sqlite {
    folder: TempDir,
    /// Another program's transaction.
    held: Option<SqliteConnection>,
    space: Option<Space>,
}

impl Sqlite {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        Self {
            space: Space::mount(&folder, "300m"),
            folder,
            held: None,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("service.db")
    }

    async fn admin(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.file());
        let options = options.busy_timeout(Duration::from_secs(60));
        options.connect().await.unwrap()
    }

    async fn administer(&self, sql: &'static str) {
        sqlx::query(sql).execute(&mut self.admin().await).await.unwrap();
    }
}

#[async_trait]
impl Place for Sqlite {
    fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    fn url(&self, _: &[SocketAddr]) -> String {
        self.file().display().to_string()
    }

    fn harms(&self) -> Vec<Harm> {
        let mut harms = vec![Harm::TableAway, Harm::RowsLocked];
        harms.extend(self.space.as_ref().map(|_| Harm::Full));
        harms
    }

    async fn apply(&mut self, harm: Harm) {
        match harm {
            Harm::TableAway => {
                self.administer("ALTER TABLE delayline_tasks RENAME TO gone")
                    .await;
            }
            Harm::RowsLocked => {
                // A writer locks all of it.
                let mut other = self.admin().await;
                sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
                self.held = Some(other);
            }
            Harm::Full => block_in_place(|| self.space.as_ref().unwrap().fill()),
            _ => super::unknown(harm),
        }
    }

    async fn undo(&mut self, harm: Harm) {
        match harm {
            Harm::TableAway => {
                self.administer("ALTER TABLE gone RENAME TO delayline_tasks")
                    .await;
            }
            Harm::RowsLocked => drop(self.held.take()),
            Harm::Full => self.space.as_ref().unwrap().free(),
            _ => super::unknown(harm),
        }
    }
}
