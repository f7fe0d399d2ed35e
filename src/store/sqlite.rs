//! Keeps rows in an SQLite file.

mod builder;
mod connections;
mod driver;
mod presence;
mod runner;
mod schema;
mod session;
mod statements;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};

pub use self::builder::SqliteBuilder;
use self::connections::{BUSY_TIMEOUT, Pool, Writing, not_opened, pool};
use self::presence::Presence;
use self::session::{JoinedSession, OwnSession};
use super::delegated::{delegate_store, unchanged};
use super::sql::SqlTable;
use super::{Engine, Transaction};
use crate::clock::Clock;
use crate::{Error, defaults};

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
///
/// # One writer
///
/// SQLite locks a whole file and no rows: while a transaction that has written is open, the application's own included,
/// no other writes. What reads goes on. What writes waits for some seconds, and every call ends within
/// [`defaults::STORE_TIMEOUT`], then with an error that is transient. So keep transactions short, and
/// [`join`](Self::join) one late:
///
/// - Nothing is scheduled, changed, claimed or ended meanwhile; the worker repeats its ends of claims. Tasks run late.
/// - Leases are not renewed. No other process can take the claims either, as that is a write as well. A lease that has ended
///   by then is lost if a sweep has the lock before the renewal: then the handler is stopped, and the task starts again.
///
/// # What stands in the way
///
/// A full disk, and a file that cannot be read or written for a while, are errors that are transient; of a batch of new
/// rows nothing was written then, unless some were there already. So is a file that was deleted, moved away or replaced by
/// another: every call fails until it is back in its place, or the process starts anew. A row that cannot be read, edited by
/// hand or written by a later release, is an error of the verbs that mean it; what claims or sweeps puts it out of the way
/// for a minute or a lease, as running under a lease that no worker has, and logs it. A batch with rows that the file refuses, such as
/// by a trigger of the application's, is written without them. A file that a later release has changed is refused when it is
/// opened and when a worker starts; what runs already goes on with it.
#[derive(Clone)]
pub struct SqliteStore {
    engine: Engine<SqlTable<OwnSession>>,
    file: Arc<File>,
    keep_history: Duration,
}

struct File {
    writer: Pool,
    readers: Pool,
    clock: Clock,
}

impl SqliteStore {
    /// Opens the file, which is created unless it is there, and brings its schema up to date, with the defaults of
    /// [`builder`](Self::builder).
    ///
    /// ```
    /// use delayline::Scheduler;
    /// use delayline::store::SqliteStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("tasks.db");
    /// let store = SqliteStore::open(path).await?;
    /// let scheduler = Scheduler::new(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder(path).open().await
    }

    /// A store with settings of its own, in the file at `path`.
    pub fn builder(path: impl AsRef<Path>) -> SqliteBuilder {
        SqliteBuilder::new(path.as_ref().to_owned())
    }

    async fn opened(path: &Path, clock: Clock, keep_history: Duration) -> Result<Self, Error> {
        let common = SqliteConnectOptions::new()
            .filename(path)
            .row_buffer_size(ROWS_AHEAD)
            .disable_statement_logging();
        let writer = common
            .clone()
            .busy_timeout(Duration::ZERO)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .thread_name(|_| "delayline-sqlite-write".to_owned());
        let reader = common
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("query_only", "ON")
            .thread_name(|_| "delayline-sqlite-read".to_owned());
        // Only now: a file that is moved away later is missing, and no new one takes its place.
        let create = writer.clone().create_if_missing(true);
        let presence = Arc::new(Presence::new(path));
        let file = File {
            writer: pool(writer, &presence, 1, &clock),
            readers: pool(reader, &presence, READERS, &clock),
            clock: clock.clone(),
        };
        let prepared = file.in_time(file.prepare(create, &presence)).await;
        prepared.map_err(|error| not_opened(path, error))?;
        presence.remember();
        let file = Arc::new(file);
        let table = SqlTable(OwnSession(Arc::clone(&file)));
        Ok(Self {
            engine: Engine::new(table, clock, keep_history),
            file,
            keep_history,
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
    /// that has read before another wrote, and the renewal of a lease is enough of a write. How long a call waits is
    /// up to the connection (`busy_timeout`), and so is a disk that hangs.
    pub fn join<'t>(&'t self, connection: &'t mut SqliteConnection) -> impl Transaction + 't {
        let joined = JoinedSession::new(connection, self.file.clock.clone());
        self.engine.join(SqlTable(joined))
    }
}

/// The file does not keep a log for readers beside the writer: it is in memory, or the file system cannot.
#[derive(Debug, thiserror::Error)]
#[error("journal mode is {0:?}: needed is a file on a file system where SQLite can keep a write-ahead log")]
struct NoLog(String);

/// A call has not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("nothing came of the call within {0:?}: the file is locked for long, or its disk hangs")]
struct Late(Duration);

impl File {
    /// What opening the file gives; an error if it takes too long.
    async fn in_time<T>(&self, call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        let limit = defaults::STORE_TIMEOUT;
        let done = self.clock.timeout(limit, call).await;
        done.unwrap_or_else(|| Err(sqlx::Error::Io(io::Error::other(Late(limit)))))
    }

    /// A transaction that holds the lock for writing.
    async fn write(&self) -> Result<Writing, sqlx::Error> {
        connections::write(&self.writer, &self.clock).await
    }

    async fn prepare(
        &self,
        create: SqliteConnectOptions,
        presence: &Arc<Presence>,
    ) -> Result<(), sqlx::Error> {
        pool(create, presence, 1, &self.clock).lend().await?;
        let mut lent = self.writer.lend().await?;
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&mut *lent)
            .await?;
        if !mode.eq_ignore_ascii_case("wal") {
            return Err(sqlx::Error::Configuration(NoLog(mode).into()));
        }
        lent.give_back();
        let mut writing = self.write().await?;
        let now = writing.now.as_millis();
        schema::migrate(&mut writing, now).await?;
        writing.commit().await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("clock", &self.file.clock)
            .field("keep_history", &self.keep_history)
            .finish_non_exhaustive()
    }
}

delegate_store!(SqliteStore, engine, unchanged);

#[cfg(test)]
mod tests;
