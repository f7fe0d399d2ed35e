//! The settings of a store.

use std::path::PathBuf;
use std::time::Duration;

use super::SqliteStore;
use crate::clock::Clock;
use crate::{Error, defaults};

/// Makes a [`SqliteStore`].
#[must_use]
#[derive(Clone, Debug)]
pub struct SqliteBuilder {
    path: PathBuf,
    clock: Clock,
    keep_history: Duration,
}

impl SqliteBuilder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            clock: Clock::system(),
            keep_history: defaults::HISTORY,
        }
    }

    /// By which clock the store goes; the machine's otherwise.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps rows that this store finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.keep_history = history;
        self
    }

    /// Opens the file, which is created unless it is there, then for its owner alone, and brings its schema up to date.
    pub async fn open(self) -> Result<SqliteStore, Error> {
        create_private(self.path.clone(), &self.clock).await;
        SqliteStore::opened(&self.path, self.clock, self.keep_history).await
    }
}

/// Creates the file unless it is there, so that only its owner can read the tasks; SQLite gives the files beside it the
/// same mode. Why it cannot is for SQLite to say, which tries again.
async fn create_private(path: PathBuf, clock: &Clock) {
    #[cfg(unix)]
    if path.as_os_str() != ":memory:" {
        let create = move || {
            use std::os::unix::fs::OpenOptionsExt as _;
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(path)
        };
        // A disk that hangs is waited for no longer than by SQLite.
        let created = tokio::task::spawn_blocking(create);
        let _ = clock.timeout(defaults::STORE_TIMEOUT, created).await;
    }
    #[cfg(not(unix))]
    drop((path, clock));
}
