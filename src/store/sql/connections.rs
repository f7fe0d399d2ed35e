//! A store's own connections to a server, lent to one caller each.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::clock::Clock;

/// For how long a server may take to be reached.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// For how long it may take to say that it is still there.
const PING_WITHIN: Duration = Duration::from_secs(1);
/// After which idleness a connection is tried before it is used: its server may have gone. One that has just been used
/// is not, as that would be one more round trip for every call.
const PING_AFTER: Duration = Duration::from_millis(100);
/// After which idleness a connection is closed, and at which age: names may lead to another server by then.
const IDLE_FOR: Duration = Duration::from_secs(10 * 60);
pub(in crate::store) const LIVES_FOR: Duration = Duration::from_secs(30 * 60);

/// How often something is begun anew that the server gave up in favour of another transaction.
const TRIES: u64 = 10;
/// For how many milliseconds to wait before, at the most, the first time; it doubles a few times.
const PAUSE: u64 = 8;

/// Opens a connection, and makes it one that a store can use.
#[async_trait]
pub(in crate::store) trait Dial: Send + Sync {
    type Connection: Connection + Send;

    async fn dial(&self) -> Result<Self::Connection, sqlx::Error>;

    /// Sends statements that end a transaction or begin one, of which no row is asked.
    async fn run(connection: &mut Self::Connection, sql: String) -> Result<(), sqlx::Error>;

    /// What begins a transaction.
    fn begin(&self) -> String {
        "START TRANSACTION".to_owned()
    }
}

/// The connections to one server, by what they are for, so many at the most for each.
pub(in crate::store) struct Pools<D: Dial> {
    /// For verbs and what is read.
    pub(in crate::store) callers: Connections<D>,
    /// For what workers do, so that no caller keeps a claim from being kept or ended.
    pub(in crate::store) workers: Connections<D>,
    pub(in crate::store) clock: Clock,
}

impl<D: Dial> Pools<D> {
    pub(in crate::store) fn new(dial: [D; 2], count: usize, clock: Clock) -> Self {
        let [callers, workers] = dial.map(|dial| Connections::new(dial, count, clock.clone()));
        Self {
            callers,
            workers,
            clock,
        }
    }

    pub(in crate::store) fn of(&self, is_workers: bool) -> &Connections<D> {
        if is_workers { &self.workers } else { &self.callers }
    }

    /// Closes all of them.
    pub(in crate::store) fn forget(&self) {
        self.callers.forget();
        self.workers.forget();
    }

    /// What `call` gives, which is repeated where the server gave it up in favour of another transaction. Nothing of it has
    /// happened then.
    pub(in crate::store) async fn retried<T, F>(
        &self,
        is_conflict: impl Fn(&sqlx::Error) -> bool,
        call: impl Fn() -> F,
    ) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let mut failed = 0_u64;
        loop {
            let error = match call().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            failed += 1;
            if !is_conflict(&error) || failed == TRIES {
                return Err(error);
            }
            // For a random while, so that two that met do not meet again.
            let millis = self.clock.random_below(PAUSE << (failed - 1).min(4));
            self.clock.sleep(Duration::from_millis(millis)).await;
        }
    }
}

/// The server did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the server did not answer within {0:?}")]
pub(in crate::store) struct Away(pub(in crate::store) Duration);

impl From<Away> for sqlx::Error {
    fn from(away: Away) -> Self {
        Self::Io(io::Error::new(io::ErrorKind::TimedOut, away))
    }
}

/// Up to so many connections, opened as they are needed; callers wait for one in the order they come.
///
/// A connection comes back only when its caller says that it is as it was. A caller that fails, or whose future is
/// dropped half-way, closes it, and its transaction with it: so what a connection was left in is never a question, and
/// one that has fallen silent, or leads to a server that takes no writes any more, is not used again.
pub(in crate::store) struct Connections<D: Dial> {
    dial: D,
    permits: Semaphore,
    idle: Mutex<Vec<Idle<D::Connection>>>,
    /// How often all connections were given up.
    epoch: AtomicU64,
    clock: Clock,
}

struct Idle<C> {
    connection: C,
    opened: Instant,
    since: Instant,
}

impl<D: Dial> Connections<D> {
    pub(in crate::store) fn new(dial: D, count: usize, clock: Clock) -> Self {
        Self {
            dial,
            permits: Semaphore::new(count.min(Semaphore::MAX_PERMITS)),
            idle: Mutex::default(),
            epoch: AtomicU64::new(0),
            clock,
        }
    }

    /// Lends a connection, to a server that has just answered.
    pub(in crate::store) async fn lend(&self) -> Result<Lent<'_, D>, sqlx::Error> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let (connection, opened) = match self.living().await {
            Some(living) => living,
            None => self.connect().await?,
        };
        Ok(Lent {
            connection,
            opened,
            epoch: self.epoch.load(Ordering::Relaxed),
            home: self,
            _permit: permit,
        })
    }

    /// The same, with a transaction begun, which is undone unless it is [committed](Lent::commit).
    pub(in crate::store) async fn begin(&self) -> Result<Lent<'_, D>, sqlx::Error> {
        let mut lent = self.lend().await?;
        D::run(&mut lent, self.dial.begin()).await?;
        Ok(lent)
    }

    /// Closes all connections, those that are lent when they come back.
    pub(in crate::store) fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.idle().clear();
    }

    /// An idle connection whose server is still there.
    async fn living(&self) -> Option<(D::Connection, Instant)> {
        let now = self.clock.instant();
        let idle = {
            let mut idle = self.idle();
            idle.retain(|idle| now - idle.since < IDLE_FOR && now - idle.opened < LIVES_FOR);
            idle.pop()
        };
        let Idle {
            mut connection,
            opened,
            since,
        } = idle?;
        if now - since >= PING_AFTER
            && !matches!(
                self.clock.timeout(PING_WITHIN, connection.ping()).await,
                Some(Ok(()))
            )
        {
            // What has ended this one has hardly ended it alone: trying the others could take as long each.
            self.forget();
            return None;
        }
        Some((connection, opened))
    }

    async fn connect(&self) -> Result<(D::Connection, Instant), sqlx::Error> {
        let connection = self.clock.timeout(CONNECT_WITHIN, self.dial.dial()).await;
        let connection = connection.unwrap_or_else(|| Err(Away(CONNECT_WITHIN).into()))?;
        Ok((connection, self.clock.instant()))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<D::Connection>>> {
        // A push or a pop leaves nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is lent; it is closed unless it is given back.
pub(in crate::store) struct Lent<'a, D: Dial> {
    // Closed before the permit is free, as the fields are dropped in this order.
    connection: D::Connection,
    opened: Instant,
    epoch: u64,
    home: &'a Connections<D>,
    _permit: SemaphorePermit<'a>,
}

impl<D: Dial> Lent<'_, D> {
    /// Makes durable what its transaction has written, and gives it back.
    pub(in crate::store) async fn commit(mut self) -> Result<(), sqlx::Error> {
        D::run(&mut self, "COMMIT".to_owned()).await?;
        self.give_back();
        Ok(())
    }

    /// Gives the connection back as it was.
    pub(in crate::store) fn give_back(self) {
        let Self {
            connection,
            opened,
            epoch,
            home,
            ..
        } = self;
        if epoch == home.epoch.load(Ordering::Relaxed) {
            let since = home.clock.instant();
            home.idle().push(Idle {
                connection,
                opened,
                since,
            });
        }
    }
}

impl<D: Dial> Deref for Lent<'_, D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.connection
    }
}

impl<D: Dial> DerefMut for Lent<'_, D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.connection
    }
}
