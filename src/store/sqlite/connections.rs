//! Connections to one file, lent to one caller each.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::presence::Presence;
use crate::clock::Clock;
use crate::store::sql::{Driver, RowError};
use crate::{Error, Timestamp};

/// For how long SQLite itself waits for another connection's lock where it reads, which hardly ever happens.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long a call that writes is told that the lock could not be had. Until then it is asked for again and again: SQLite
/// does not queue for it, and where several processes write all the time it is free for moments only. SQLite's own
/// waiting looks for such a moment ten times a second, and may miss all of them.
const LOCK_DEADLINE: Duration = Duration::from_secs(9);
/// For how many milliseconds to wait before asking again, at the most.
const PAUSE: u64 = 10;

/// Up to so many connections to one file, opened as they are needed; callers wait for one in the order they come.
///
/// A connection comes back only when its caller says that it is as it was. A caller that fails, or whose future is
/// dropped half-way, closes it, and its transaction with it: so what a connection was left in is never a question. Its
/// place is taken until its thread has let go of the file: a disk that hangs must not gather threads that wait for it.
#[derive(Debug)]
pub(super) struct Connections {
    options: SqliteConnectOptions,
    presence: Arc<Presence>,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<SqliteConnection>>,
    clock: Clock,
}

impl Connections {
    pub(super) fn new(
        options: SqliteConnectOptions,
        presence: &Arc<Presence>,
        count: usize,
        clock: Clock,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            presence: Arc::clone(presence),
            places: Arc::new(Semaphore::new(count)),
            idle: Mutex::default(),
            clock,
        })
    }

    /// Lends a connection, to the file that was opened first.
    pub(super) async fn lend(self: &Arc<Self>) -> Result<Lent, sqlx::Error> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
        // Another file must not be opened either: what is in the log beside it is not its own.
        self.presence.check()?;
        let home = Arc::clone(self);
        if let Some(connection) = self.idle().pop() {
            return Ok(Lent::new(connection, home, place));
        }
        // Goes on without its caller, as the thread that opens the file does.
        let opening = tokio::spawn(async move {
            let connection = home.connect().await?;
            Ok(Lent::new(connection, home, place))
        });
        opening.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }

    /// Lends a connection that has begun a transaction and holds the lock for writing.
    pub(super) async fn write(self: &Arc<Self>) -> Result<Writing, sqlx::Error> {
        let mut lent = self.lend().await?;
        let begun = self.clock.instant();
        while let Err(error) = sqlx::query("BEGIN IMMEDIATE").execute(&mut *lent).await {
            self.pause_after(error, begun).await?;
        }
        let now = self.clock.now();
        Ok(Writing { lent, now })
    }

    /// How many connections may be lent now, and a way to wait for those that are being closed.
    #[cfg(test)]
    pub(super) fn places(&self) -> &Semaphore {
        &self.places
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

    /// After another connection's lock was in the way: waits a random while, so that two that want it do not ask in step.
    /// Passes on any other error, and this one when the caller has waited long enough.
    async fn pause_after(&self, error: sqlx::Error, begun: Instant) -> Result<(), sqlx::Error> {
        if !is_lock(&error) || begun.elapsed() >= LOCK_DEADLINE {
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
pub(super) struct Lent {
    connection: Option<SqliteConnection>,
    home: Arc<Connections>,
    place: Option<OwnedSemaphorePermit>,
}

impl Lent {
    fn new(connection: SqliteConnection, home: Arc<Connections>, place: OwnedSemaphorePermit) -> Self {
        Self {
            connection: Some(connection),
            home,
            place: Some(place),
        }
    }

    /// Gives the connection back as it was.
    pub(super) fn give_back(mut self) {
        let connection = self.connection.take();
        self.home.idle().extend(connection);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Without a runtime no task is left that could wait.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let Some(connection) = self.connection.take() else {
            return;
        };
        let place = self.place.take();
        runtime.spawn(async move {
            // Whatever it says, it is closed.
            let _ = connection.close().await;
            drop(place);
        });
    }
}

impl Deref for Lent {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.connection.as_ref().expect("only the end of a loan takes it")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.connection.as_mut().expect("only the end of a loan takes it")
    }
}

/// A transaction that holds the lock for writing; it is undone unless it is committed.
pub(super) struct Writing {
    lent: Lent,
    /// The time when it had the lock: what others have committed is not later.
    pub(super) now: Timestamp,
}

impl Writing {
    /// Makes it durable.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::query("COMMIT").execute(&mut *self.lent).await?;
        self.end()
    }

    /// Ends it where a statement has made it durable.
    pub(super) fn end(self) -> Result<(), sqlx::Error> {
        // In a file that is still there?
        self.lent.home.presence.check()?;
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

/// SQLite's primary result codes: those that time, or an operator, may mend, and then those of one row.
mod code {
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

/// What a call failed of, if that was a row.
pub(super) fn classify(error: &sqlx::Error) -> Option<RowError> {
    let refused = [code::TOO_BIG, code::CONSTRAINT, code::MISMATCH];
    let is_refused = code_of(error).is_some_and(|code| refused.contains(&code));
    is_refused.then(|| match SqliteConnection::is_taken(error) {
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
