//! The store's own connections, lent to one caller each.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::errors::{self, Away};
use crate::Clock;

/// For how long the server may take to be reached, and to say that it is still there.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// What the store relies on, whatever the server's settings are. The time zone and the character set are set by the
/// driver. Every statement sees what is committed when it begins, and locks only the rows that it chooses; values
/// that do not fit are refused; and nobody waits for a lock for long, as it may be one that its owner forgot.
const SETTINGS: [&str; 2] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION innodb_lock_wait_timeout = 5, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
];

/// Up to so many connections, opened as they are needed; callers wait for one in the order they come.
///
/// A connection comes back only when its caller says that it is as it was. A caller that fails, or whose future is
/// dropped half-way, closes it, and its transaction with it: so what a connection was left in is never a question.
pub(super) struct Connections {
    options: MySqlConnectOptions,
    permits: Semaphore,
    idle: Mutex<Vec<MySqlConnection>>,
    clock: Clock,
}

impl Connections {
    pub(super) fn new(options: MySqlConnectOptions, count: usize) -> Self {
        Self {
            options: options
                .timezone(Some("+00:00".to_owned()))
                .disable_statement_logging(),
            permits: Semaphore::new(count),
            idle: Mutex::default(),
            clock: Clock::system(),
        }
    }

    /// Lends a connection on which no transaction is begun, to a server that has just answered.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, sqlx::Error> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let connection = self.clock.timeout(CONNECT_WITHIN, self.living()).await;
        let connection = connection.unwrap_or_else(|| Err(Away::within(CONNECT_WITHIN).into()))?;
        Ok(Lent {
            connection,
            home: self,
            _permit: permit,
        })
    }

    /// Lends a connection that has begun a transaction.
    pub(super) async fn begin(&self) -> Result<Writing<'_>, sqlx::Error> {
        let mut lent = self.lend().await?;
        sqlx::raw_sql("START TRANSACTION").execute(&mut *lent).await?;
        Ok(Writing { lent })
    }

    /// After a transaction or statement of the store's own has failed: waits a random while if it was undone for
    /// somebody else's sake, and may be tried again; else passes the error on.
    pub(super) async fn pause_after(&self, error: sqlx::Error, tries: &mut u32) -> Result<(), sqlx::Error> {
        *tries += 1;
        if !errors::is_crossed(&error) || *tries >= TRIES {
            return Err(error);
        }
        let millis = self.clock.random_below(PAUSE << (*tries).min(5));
        self.clock.sleep(Duration::from_millis(millis)).await;
        Ok(())
    }

    /// An idle connection that still answers, else a new one. After a server was started again, all idle ones are dead.
    async fn living(&self) -> Result<MySqlConnection, sqlx::Error> {
        loop {
            let idle = self.idle().pop();
            let Some(mut connection) = idle else {
                return self.connect().await;
            };
            if connection.ping().await.is_ok() {
                return Ok(connection);
            }
        }
    }

    async fn connect(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        for setting in SETTINGS {
            sqlx::raw_sql(setting).execute(&mut connection).await?;
        }
        Ok(connection)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<MySqlConnection>> {
        // A push or a pop leaves nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a transaction that was undone for somebody else's sake is tried in all.
const TRIES: u32 = 10;
/// For how many milliseconds to wait before that, at the most, the first time; it doubles a few times.
const PAUSE: u64 = 4;

/// A connection that is lent; it is closed unless it is given back.
pub(super) struct Lent<'a> {
    // Closed before the permit is free, as the fields are dropped in this order.
    connection: MySqlConnection,
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
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.connection
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.connection
    }
}

/// A transaction; it is undone unless it is committed.
pub(super) struct Writing<'a> {
    lent: Lent<'a>,
}

impl Writing<'_> {
    /// Makes it durable.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("COMMIT").execute(&mut *self.lent).await?;
        self.lent.give_back();
        Ok(())
    }
}

impl Deref for Writing<'_> {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.lent
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.lent
    }
}
