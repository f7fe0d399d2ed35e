//! Rows that cannot be read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use tokio::time::Instant;
use tracing::error;

use super::codec;
use crate::Task;
use crate::clock::Clock;

/// For how long a row is left out before it is looked at, and told of, again.
pub(super) const PAUSE: Duration = Duration::from_secs(60);
/// How often rows are read again within one call, those that cannot be read left out.
pub(super) const TRIES: usize = 10;
/// How many rows are left out at the most.
const MOST: usize = 10_000;

/// Remembers rows that make no sense to this release, edited by hand or written by a later one: each is told of, and
/// left out for a while, so that the others run however many of these there are.
#[derive(Debug)]
pub(super) struct Unreadable {
    clock: Clock,
    /// Their ids as the file has them, each with when it is looked at again.
    rows: Mutex<BTreeMap<Vec<u8>, Instant>>,
}

impl Unreadable {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            rows: Mutex::default(),
        }
    }

    /// The ids of the rows to leave out, for a statement's parameter.
    pub(super) fn ids(&self) -> Result<String, sqlx::Error> {
        let mut rows = self.rows();
        if !rows.is_empty() {
            let now = self.clock.instant();
            rows.retain(|_, until| *until > now);
        }
        codec::raw_ids(rows.keys())
    }

    /// What can be read of rows by `read`.
    pub(super) fn sound<T>(
        &self,
        rows: &[SqliteRow],
        read: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
    ) -> Vec<T> {
        let sound = |row| read(row).map_err(|error| self.tell(row, &error)).ok();
        rows.iter().filter_map(sound).collect()
    }

    /// What can be read of rows with all columns.
    pub(super) fn tasks(&self, rows: &[SqliteRow]) -> Vec<Task> {
        self.sound(rows, codec::task)
    }

    fn tell(&self, row: &SqliteRow, error: &sqlx::Error) {
        let id = codec::raw_id(row);
        let mut rows = self.rows();
        let is_told = rows.contains_key(&id);
        if is_told || rows.len() >= MOST {
            return;
        }
        error!(
            store = super::NAME, id = codec::hex(&id), %error,
            "the row of a task cannot be read, so it does not run, and holds up no other; repair or remove it"
        );
        rows.insert(id, self.clock.instant() + PAUSE);
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Instant>> {
        // An insertion or a removal leaves nothing half done.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
