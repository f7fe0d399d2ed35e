//! Connections to one file.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};
use tokio::time::Instant;

use super::presence::Presence;
use crate::clock::Clock;
use crate::store::sql::{Connections, Dial, Lent, RowError};
use crate::{Error, Timestamp};

/// For how long SQLite itself waits for another connection's lock where it reads, which hardly ever happens.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long a call that writes is told that the lock could not be had. Until then it is asked for again and again: SQLite
/// does not queue for it, and where several processes write all the time it is free for moments only. SQLite's own
/// waiting looks for such a moment ten times a second, and may miss all of them.
const LOCK_DEADLINE: Duration = Duration::from_secs(9);
/// For how many milliseconds to wait before asking again, at the most.
const PAUSE: u64 = 10;

/// Connections of one purpose.
pub(super) type Pool = Arc<Connections<Dialer>>;

/// Where connections lead: to the file that was opened first.
pub(super) struct Dialer {
    options: SqliteConnectOptions,
    presence: Arc<Presence>,
    clock: Clock,
}

/// So many connections at the most.
pub(super) fn pool(
    options: SqliteConnectOptions,
    presence: &Arc<Presence>,
    count: usize,
    clock: &Clock,
) -> Pool {
    let place = Dialer {
        options,
        presence: Arc::clone(presence),
        clock: clock.clone(),
    };
    Connections::new(place, count, clock.clone())
}

#[async_trait]
impl Dial for Dialer {
    type Connection = SqliteConnection;

    /// A disk that hangs must not gather threads that wait for it: so the place is taken until the thread is back.
    const CONNECT_WITHIN: Duration = Duration::MAX;

    /// Another file must not be opened either: what is in the log beside it is not its own.
    fn check(&self) -> Result<(), sqlx::Error> {
        self.presence.check()
    }

    async fn dial(&self) -> Result<SqliteConnection, sqlx::Error> {
        let begun = self.clock.instant();
        loop {
            match self.options.connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) => pause_after(error, begun, &self.clock).await?,
            }
        }
    }

    /// As soon as its thread has let go of the file.
    async fn close(connection: SqliteConnection) {
        // Whatever it says, it is closed.
        let _ = connection.close().await;
    }

    async fn run(connection: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
        done.map(drop)
    }
}

/// Lends a connection that has begun a transaction and holds the lock for writing.
pub(super) async fn write(pool: &Pool, clock: &Clock) -> Result<Writing, sqlx::Error> {
    let mut lent = pool.lend().await?;
    let begun = clock.instant();
    while let Err(error) = sqlx::query("BEGIN IMMEDIATE").execute(&mut *lent).await {
        pause_after(error, begun, clock).await?;
    }
    let now = clock.now();
    Ok(Writing { lent, now })
}

/// After another connection's lock was in the way: waits a random while, so that two that want it do not ask in step.
/// Passes on any other error, and this one when the caller has waited long enough.
async fn pause_after(error: sqlx::Error, begun: Instant, clock: &Clock) -> Result<(), sqlx::Error> {
    if !is_lock(&error) || begun.elapsed() >= LOCK_DEADLINE {
        return Err(error);
    }
    let millis = 1 + clock.random_below(PAUSE);
    clock.pause(Duration::from_millis(millis)).await;
    Ok(())
}

/// A transaction that holds the lock for writing; it is undone unless it is committed.
pub(super) struct Writing {
    lent: Lent<Dialer>,
    /// The time when it had the lock: what others have committed is not later.
    pub(super) now: Timestamp,
}

impl Writing {
    /// Makes it durable.
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        self.lent.commit().await
    }

    /// Ends it where a statement has made it durable.
    pub(super) fn end(self) -> Result<(), sqlx::Error> {
        // In a file that is still there?
        self.lent.check()?;
        self.lent.give_back();
        Ok(())
    }
}

impl Deref for Writing {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.lent
    }
}

impl DerefMut for Writing {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.lent
    }
}

/// SQLite's primary result codes: that of a statement, those that time, or an operator, may mend, and those of one row.
mod code {
    /// A statement that makes no sense, as of a table that is not there.
    pub(super) const ERROR: i32 = 1;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const OUT_OF_MEMORY: i32 = 7;
    /// The file, or its file system, for as long as it is made so.
    pub(super) const READ_ONLY: i32 = 8;
    pub(super) const INTERRUPT: i32 = 9;
    pub(super) const IO: i32 = 10;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANNOT_OPEN: i32 = 14;
    pub(super) const PROTOCOL: i32 = 15;

    pub(super) const TOO_BIG: i32 = 18;
    pub(super) const CONSTRAINT: i32 = 19;
    pub(super) const MISMATCH: i32 = 20;
}

/// The primary result code of an error of SQLite's.
fn code_of(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xFF)
}

/// Whether another connection's lock was in the way.
fn is_lock(error: &sqlx::Error) -> bool {
    matches!(code_of(error), Some(code::BUSY | code::LOCKED | code::PROTOCOL))
}

/// Whether a statement failed since a row that it was to write would be a second one of its id, or a second live one of its
/// key.
pub(super) fn is_taken(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.is_unique_violation())
}

/// Whether a statement that reads leaves its connection as it was: one that makes no sense says nothing of it. Each connection
/// is a thread, and where a table is missing every statement fails.
pub(super) fn leaves_reader<T>(read: &Result<T, sqlx::Error>) -> bool {
    let makes_no_sense = |error| code_of(error) == Some(code::ERROR);
    read.as_ref().err().is_none_or(makes_no_sense)
}

/// What a call failed of, if that was a row.
pub(super) fn classify(error: &sqlx::Error) -> Option<RowError> {
    let refused = [code::TOO_BIG, code::CONSTRAINT, code::MISMATCH];
    let is_refused = code_of(error).is_some_and(|code| refused.contains(&code));
    is_refused.then(|| match is_taken(error) {
        true => RowError::Taken,
        false => RowError::Refused(error.to_string()),
    })
}

fn is_transient(error: &sqlx::Error) -> bool {
    use code::{CANNOT_OPEN, FULL, INTERRUPT, IO, OUT_OF_MEMORY, READ_ONLY};
    let broken = matches!(error, sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed);
    let passing = [OUT_OF_MEMORY, READ_ONLY, INTERRUPT, IO, FULL, CANNOT_OPEN];
    broken || is_lock(error) || code_of(error).is_some_and(|code| passing.contains(&code))
}

/// The store's error for what the driver said.
pub(super) fn failed(error: sqlx::Error) -> Error {
    Error::Store {
        store: super::NAME,
        transient: is_transient(&error),
        source: error.into(),
    }
}

/// The store's error for a file that could not be opened: unless a lock was in the way, or it took too long, trying
/// again is no use.
pub(super) fn not_opened(path: &std::path::Path, error: sqlx::Error) -> Error {
    Error::Store {
        store: super::NAME,
        transient: is_lock(&error) || matches!(error, sqlx::Error::Io(_)),
        source: format!("cannot open {}: {error}", path.display()).into(),
    }
}
