//! Keeps rows in an SQLite file.

mod claim;
mod codec;
mod connections;
mod read;
mod schema;
mod session;
mod settle;
mod sql;
mod sweep;
mod transaction;
mod verbs;
mod write;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

use self::connections::{BUSY_TIMEOUT, Connections, failed, not_opened};
use super::{
    Ahead, Change, Claim, Hop, Looked, NewRow, Page, Pending, Renewal, Settlement, Stamped, Store, Sweep,
    Transaction,
};
use crate::{Answer, Clock, Error, Kind, Scheduled, State, Target, Task, TaskId, Timestamp, Wake, defaults};

const NAME: &str = "sqlite";

/// How many calls read at once. SQLite reads from the page cache, so few threads suffice.
const READERS: usize = 4;
/// How many rows a connection's thread may be ahead of who reads them: those of a usual batch.
const ROWS_AHEAD: usize = 1_024;

/// Keeps rows in an SQLite file, which may hold the application's own tables as well.
///
/// A clone is another handle of the same connections: one that writes, a few that read. Other processes, and the
/// application's own connections, may use the file at the same time (write-ahead logging). A call that comes back has
/// been written to the disk. Times are those of the clock that the store was opened with, read while it holds the
/// lock for writing.
#[derive(Clone)]
pub struct SqliteStore {
    file: Arc<File>,
    history: Duration,
}

struct File {
    writer: Connections,
    readers: Connections,
    clock: Clock,
}

impl SqliteStore {
    /// Opens the file, which is created unless it is there, brings its schema up to date, and goes by the machine's
    /// clock.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with_clock(path, Clock::system()).await
    }

    /// As [`open`](Self::open), but goes by `clock`.
    pub async fn open_with_clock(path: impl AsRef<Path>, clock: Clock) -> Result<Self, Error> {
        let path = path.as_ref();
        let common = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .row_buffer_size(ROWS_AHEAD)
            .disable_statement_logging();
        let writer = common
            .clone()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .thread_name(|_| "delayline-sqlite-write".to_owned());
        let reader = common
            .pragma("query_only", "ON")
            .thread_name(|_| "delayline-sqlite-read".to_owned());
        let file = File {
            writer: Connections::new(writer, 1, clock.clone()),
            readers: Connections::new(reader, READERS, clock.clone()),
            clock,
        };
        file.prepare().await.map_err(|error| not_opened(path, error))?;
        Ok(Self {
            file: Arc::new(file),
            history: defaults::HISTORY,
        })
    }

    /// The whole SQL of the schema, which [`open`](Self::open) applies by itself.
    pub fn migrations() -> String {
        schema::text()
    }

    /// Joins a transaction that the service has begun on a connection of its own to the same file: what the result is
    /// given to happens when the service commits, or not at all.
    ///
    /// Begin it by `BEGIN IMMEDIATE` (`pool.begin_with("BEGIN IMMEDIATE")`): SQLite refuses to let a transaction write
    /// that has read before somebody else wrote.
    pub fn join<'t>(&'t self, connection: &'t mut SqliteConnection) -> impl Transaction + 't {
        transaction::Joined::new(self, connection)
    }

    /// Keeps rows that this handle finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    #[must_use]
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }
}

/// The file does not keep a log for readers beside the writer: it is in memory, or the file system cannot.
#[derive(Debug, thiserror::Error)]
#[error("journal mode is {0:?}: needed is a file on a file system where SQLite can keep a write-ahead log")]
struct NoLog(String);

impl File {
    async fn prepare(&self) -> Result<(), sqlx::Error> {
        let mut lent = self.writer.lend().await?;
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&mut *lent)
            .await?;
        if !mode.eq_ignore_ascii_case("wal") {
            return Err(sqlx::Error::Configuration(NoLog(mode).into()));
        }
        lent.give_back();
        let mut writing = self.writer.write().await?;
        let now = writing.now.as_millis();
        schema::migrate(&mut writing, now).await?;
        writing.commit().await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("clock", &self.file.clock)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.file.clock.now())
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        verbs::insert(&self.file, rows).await.map_err(failed)
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let answers = verbs::change(&self.file, &changes, self.history).await;
        answers.map_err(failed)
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        claim::arrive(&self.file, wakes, claim).await.map_err(failed)
    }

    async fn hop(&self, hops: &[Hop]) -> Result<Vec<bool>, Error> {
        settle::hop(&self.file, hops).await.map_err(failed)
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        claim::ready(&self.file, claim).await.map_err(failed)
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        let looked = sweep::sweep(&self.file, claim, sweep).await;
        looked.map_err(failed)
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<bool>, Error> {
        let settled = settle::settle(&self.file, settlements, self.history).await;
        settled.map_err(failed)
    }

    async fn renew(&self, claims: &[(TaskId, u64)], lease: Duration) -> Result<Vec<Renewal>, Error> {
        settle::renew(&self.file, claims, lease).await.map_err(failed)
    }

    async fn upcoming(&self, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, Error> {
        read::upcoming(&self.file, ahead).await.map_err(failed)
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        read::find(&self.file, target).await.map_err(failed)
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        read::list(&self.file, page).await.map_err(failed)
    }

    async fn kinds(&self, state: State) -> Result<Vec<Kind>, Error> {
        read::kinds(&self.file, state).await.map_err(failed)
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        sweep::purge(&self.file, limit).await.map_err(failed)
    }
}

#[cfg(test)]
mod tests;
