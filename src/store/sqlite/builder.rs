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
    history: Duration,
}

impl SqliteBuilder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            clock: Clock::system(),
            history: defaults::HISTORY,
        }
    }

    /// By which clock the store goes; the machine's otherwise.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps rows that this store finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// Opens the file, which is created unless it is there, and brings its schema up to date.
    pub async fn open(self) -> Result<SqliteStore, Error> {
        SqliteStore::opened(&self.path, self.clock, self.history).await
    }
}
