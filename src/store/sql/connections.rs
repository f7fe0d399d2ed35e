//! A store's own connections, lent to one caller each.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::clock::Clock;

/// For how long it may take to say that it is still there.
const PING_WITHIN: Duration = Duration::from_secs(1);
/// After which idleness a connection is tried before it is used: its server may have gone. One that has just been used
/// is not, as that would be one more round trip for every call.
const PING_AFTER: Duration = Duration::from_millis(100);
/// After which idleness a connection is closed, and at which age: names may lead to another server by then.
const IDLE_FOR: Duration = Duration::from_secs(10 * 60);
pub(in crate::store) const LIVES_FOR: Duration = Duration::from_secs(30 * 60);

/// How often something is begun anew that the server gave up in favour of another transaction.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const TRIES: u64 = 10;
/// For how many milliseconds to wait before, at the most, the first time; it doubles a few times.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const PAUSE: u64 = 8;

/// Opens a connection, and makes it one that a store can use.
#[async_trait]
pub(in crate::store) trait Dial: Send + Sync + 'static {
    type Connection: Connection + Send + 'static;

    /// For how long the database may take to be reached.
    const CONNECT_WITHIN: Duration = Duration::from_secs(5);

    /// Fails if connections no longer lead to what they were opened for.
    fn check(&self) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn dial(&self) -> Result<Self::Connection, sqlx::Error>;

    /// Ends a connection that is not given back. Until then its place is taken.
    async fn close(connection: Self::Connection) {
        drop(connection);
    }

    /// Sends statements that end a transaction or begin one, of which no row is asked.
    async fn run(connection: &mut Self::Connection, sql: String) -> Result<(), sqlx::Error>;

    /// What begins a transaction.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    fn begin(&self) -> String {
        "START TRANSACTION".to_owned()
    }
}

/// The connections to one server, by what they are for, so many at the most for each.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) struct Pools<D: Dial> {
    /// For verbs and what is read.
    pub(in crate::store) callers: Arc<Connections<D>>,
    /// For what workers do, so that no caller keeps a claim from being kept or ended.
    pub(in crate::store) workers: Arc<Connections<D>>,
    pub(in crate::store) clock: Clock,
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl<D: Dial> Pools<D> {
    pub(in crate::store) fn new(dial: [D; 2], count: usize, clock: Clock) -> Self {
        let [callers, workers] = dial.map(|dial| Connections::new(dial, count, clock.clone()));
        Self {
            callers,
            workers,
            clock,
        }
    }

    pub(in crate::store) fn of(&self, is_workers: bool) -> &Arc<Connections<D>> {
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
    places: Arc<Semaphore>,
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
    pub(in crate::store) fn new(dial: D, count: usize, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            dial,
            places: Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))),
            idle: Mutex::default(),
            epoch: AtomicU64::new(0),
            clock,
        })
    }

    /// Lends a connection, to a database that has just answered.
    pub(in crate::store) async fn lend(self: &Arc<Self>) -> Result<Lent<D>, sqlx::Error> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
        self.dial.check()?;
        let home = Arc::clone(self);
        if let Some((connection, opened)) = self.living().await {
            return Ok(Lent::new(connection, opened, home, place));
        }
        // Goes on without its caller, as a thread that opens a file does: so it keeps its place.
        let opening = tokio::spawn(async move {
            let connection = home.connect().await?;
            let opened = home.clock.instant();
            Ok(Lent::new(connection, opened, home, place))
        });
        opening.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }

    /// The same, with a transaction begun, which is undone unless it is [committed](Lent::commit).
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(in crate::store) async fn begin(self: &Arc<Self>) -> Result<Lent<D>, sqlx::Error> {
        let mut lent = self.lend().await?;
        D::run(&mut lent, self.dial.begin()).await?;
        Ok(lent)
    }

    /// How many connections may be lent now, and a way to wait for those that are being closed.
    #[cfg(all(test, feature = "sqlite"))]
    pub(in crate::store) fn places(&self) -> &Semaphore {
        &self.places
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

    async fn connect(&self) -> Result<D::Connection, sqlx::Error> {
        let connection = self.clock.timeout(D::CONNECT_WITHIN, self.dial.dial()).await;
        connection.unwrap_or_else(|| Err(Away(D::CONNECT_WITHIN).into()))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<D::Connection>>> {
        // A push or a pop leaves nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is lent; it is closed unless it is given back.
pub(in crate::store) struct Lent<D: Dial> {
    connection: Option<D::Connection>,
    opened: Instant,
    epoch: u64,
    home: Arc<Connections<D>>,
    place: Option<OwnedSemaphorePermit>,
}

impl<D: Dial> Lent<D> {
    fn new(
        connection: D::Connection,
        opened: Instant,
        home: Arc<Connections<D>>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            connection: Some(connection),
            opened,
            epoch: home.epoch.load(Ordering::Relaxed),
            home,
            place: Some(place),
        }
    }

    /// Fails if it no longer leads to what it was opened for.
    pub(in crate::store) fn check(&self) -> Result<(), sqlx::Error> {
        self.home.dial.check()
    }

    /// Makes durable what its transaction has written, and gives it back.
    pub(in crate::store) async fn commit(mut self) -> Result<(), sqlx::Error> {
        D::run(&mut self, "COMMIT".to_owned()).await?;
        self.check()?;
        self.give_back();
        Ok(())
    }

    /// Gives the connection back as it was.
    pub(in crate::store) fn give_back(mut self) {
        let opened = self.opened;
        if self.epoch == self.home.epoch.load(Ordering::Relaxed)
            && let Some(connection) = self.connection.take()
        {
            let since = self.home.clock.instant();
            self.home.idle().push(Idle {
                connection,
                opened,
                since,
            });
        }
    }
}

impl<D: Dial> Drop for Lent<D> {
    fn drop(&mut self) {
        // Without a runtime no task is left that could wait for its place.
        if let (Some(connection), Ok(runtime)) = (self.connection.take(), Handle::try_current()) {
            let place = self.place.take();
            runtime.spawn(async move {
                D::close(connection).await;
                drop(place);
            });
        }
    }
}

impl<D: Dial> Deref for Lent<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        self.connection.as_ref().expect("only the end of a loan takes it")
    }
}

impl<D: Dial> DerefMut for Lent<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        self.connection.as_mut().expect("only the end of a loan takes it")
    }
}
