//! Connections to one file, lent to one caller each.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::{Clock, Error, Timestamp};

/// For how long SQLite itself waits for another connection's lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long a caller is told that the lock could not be had. Until then it is asked for again: SQLite's own
/// waiting is not fair, so that among busy processes one can lose for longer than the timeout; and some steps, such
/// as the change to write-ahead logging, it refuses without waiting.
const PATIENCE: Duration = Duration::from_secs(12);
/// For how many milliseconds to wait before asking again, at the most.
const PAUSE: u64 = 50;

/// Up to so many connections to one file, opened as they are needed; callers wait for one in the order they come.
///
/// A connection comes back only when its caller says that it is as it was. A caller that fails, or whose future is
/// dropped half-way, closes it, and its transaction with it: so what a connection was left in is never a question.
#[derive(Debug)]
pub(super) struct Connections {
    options: SqliteConnectOptions,
    permits: Semaphore,
    idle: Mutex<Vec<SqliteConnection>>,
    clock: Clock,
}

impl Connections {
    pub(super) fn new(options: SqliteConnectOptions, count: usize, clock: Clock) -> Self {
        Self {
            options,
            permits: Semaphore::new(count),
            idle: Mutex::default(),
            clock,
        }
    }

    /// Lends a connection.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, sqlx::Error> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Lent {
            connection,
            home: self,
            _permit: permit,
        })
    }

    /// Lends a connection that has begun a transaction and holds the lock for writing.
    pub(super) async fn write(&self) -> Result<Writing<'_>, sqlx::Error> {
        let mut lent = self.lend().await?;
        let begun = self.clock.instant();
        while let Err(error) = sqlx::query("BEGIN IMMEDIATE").execute(&mut *lent).await {
            self.pause_after(error, begun).await?;
        }
        let now = self.clock.now();
        Ok(Writing { lent, now })
    }

    async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        let begun = self.clock.instant();
        loop {
            match self.options.connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) => self.pause_after(error, begun).await?,
            }
        }
    }

    /// After somebody's lock was in the way: waits a random while, so that two that want it do not ask in step.
    /// Passes on any other error, and this one when the caller has waited long enough.
    async fn pause_after(&self, error: sqlx::Error, begun: Instant) -> Result<(), sqlx::Error> {
        if !is_lock(&error) || begun.elapsed() >= PATIENCE {
            return Err(error);
        }
        let millis = 1 + self.clock.random_below(PAUSE);
        self.clock.sleep(Duration::from_millis(millis)).await;
        Ok(())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SqliteConnection>> {
        // A push or a pop leaves nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is lent; it is closed unless it is given back.
pub(super) struct Lent<'a> {
    // Closed before the permit is free, as the fields are dropped in this order.
    connection: SqliteConnection,
    home: &'a Connections,
    _permit: SemaphorePermit<'a>,
}

impl Lent<'_> {
    /// Gives the connection back as it was.
    pub(super) fn give_back(self) {
        self.home.idle().push(self.connection);
    }
}

impl Deref for Lent<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

/// A transaction that holds the lock for writing; it is undone unless it is committed.
pub(super) struct Writing<'a> {
    lent: Lent<'a>,
    /// The time when it had the lock: what others have committed is not later.
    pub(super) now: Timestamp,
}

impl Writing<'_> {
    /// Makes it durable.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::query("COMMIT").execute(&mut *self.lent).await?;
        self.lent.give_back();
        Ok(())
    }
}

impl Deref for Writing<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.lent
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.lent
    }
}

/// SQLite's primary result codes that time, or somebody's hand, may mend.
mod code {
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const OUT_OF_MEMORY: i32 = 7;
    pub(super) const INTERRUPT: i32 = 9;
    pub(super) const IO: i32 = 10;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANNOT_OPEN: i32 = 14;
    pub(super) const PROTOCOL: i32 = 15;
}

/// The primary result code of an error of SQLite's.
fn code_of(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xFF)
}

/// Whether somebody else's lock was in the way.
fn is_lock(error: &sqlx::Error) -> bool {
    matches!(code_of(error), Some(code::BUSY | code::LOCKED | code::PROTOCOL))
}

fn is_transient(error: &sqlx::Error) -> bool {
    use code::{CANNOT_OPEN, FULL, INTERRUPT, IO, OUT_OF_MEMORY};
    let broken = matches!(error, sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed);
    let passing = [OUT_OF_MEMORY, INTERRUPT, IO, FULL, CANNOT_OPEN];
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

/// The store's error for a file that could not be opened: unless a lock was in the way, trying again is no use.
pub(super) fn not_opened(path: &std::path::Path, error: sqlx::Error) -> Error {
    Error::Store {
        store: super::NAME,
        transient: is_lock(&error),
        source: format!("cannot open {}: {error}", path.display()).into(),
    }
}
