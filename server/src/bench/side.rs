//! Defines where tasks are kept, and the two sides that are compared.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline::store::Store;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::Error;
use super::ledger::{Ledger, now_micros};
use crate::Failure;
use crate::database::Address;

/// The option that names stores.
pub(crate) const STORE: &str = "--store";
/// The kind of all tasks.
pub(crate) const KIND: &str = "bench";
pub(crate) const PAYLOAD: [u8; 100] = [b'x'; 100];
/// How many callers there are at once, with one task in each call.
pub(crate) const CALLERS: usize = 64;
/// How many tasks go into one call otherwise, and how many callers there are then.
pub(crate) const BATCH: usize = 500;
pub(crate) const WRITERS: usize = 4;

/// One task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) number: usize,
    /// In ms since 1970, by the clock of the server.
    pub(crate) due: i64,
}

impl Item {
    /// Returns the key under which a caller knows it.
    pub(crate) fn key(&self) -> String {
        format!("{:010}", self.number)
    }
}

/// Makes the id of a bare row: in the order of time, which is where an index grows, as the library makes them.
pub(crate) fn id(number: usize) -> Uuid {
    Uuid::from_u128(1 << 120 | number as u128)
}

/// A change of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Cancel,
    /// To the time that the items say.
    Move,
    /// Tasks are marked as running, and their payloads read.
    Claim,
    /// Tasks are marked as done.
    Finish,
}

/// A server, on which everything that a run makes has a name of the run's own.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// For people and in JSON.
    fn name(&self) -> &'static str;

    /// Makes an empty store of the library.
    async fn store(&self, name: &str) -> Result<Arc<dyn Store>, Error>;

    /// Makes an empty side with the least work for the same effect.
    async fn bare(&self, name: &str) -> Result<Arc<dyn Side>, Error>;

    /// Removes everything whose name begins so.
    async fn clean(&self, prefix: &str) -> Result<(), Error>;
}

/// Returns the place that an address names; connects to nothing.
pub(crate) fn place(address: &Address) -> Result<Box<dyn Place>, Failure> {
    match address.scheme() {
        #[cfg(feature = "sqlite")]
        "" | "sqlite" => Ok(Box::new(super::sqlite::Sqlite::beside(address)?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let options = address.options(["postgres", "postgresql"])?;
            Ok(Box::new(super::postgres::Postgres(options)))
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Box::new(super::mysql::MySql(
            address.options(["mysql", "mariadb"])?,
        ))),
        #[cfg(feature = "redis")]
        scheme if scheme.starts_with("redis") => Ok(Box::new(super::redis::Redis::named(address.text())?)),
        _ => Err(address.unknown()),
    }
}

/// One way of keeping tasks: the library's, or rows by the bare statements or commands of a driver.
#[async_trait]
pub(crate) trait Side: Send + Sync {
    /// Changes tasks in one call; returns how many were changed.
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error>;

    /// Returns the time by which tasks are due, in ms: if not the server's, then this program's.
    async fn now(&self) -> Result<i64, Error> {
        Ok(now_micros() / 1_000)
    }

    /// Starts tasks at their time and ends them, until all have ended; returns how many did. By default this is the
    /// least that a server must do: each is claimed when it is due, by its id, in batches by four connections, and
    /// finished.
    async fn drain(self: Arc<Self>, ledger: Arc<Ledger>) -> Result<usize, Error> {
        let next = Mutex::new(0);
        let work = async || {
            let mut finished = 0;
            loop {
                let items = due(&ledger, &mut *next.lock().await).await;
                if items.is_empty() {
                    return Ok::<_, Error>(finished);
                }
                self.apply(Verb::Claim, &items).await?;
                for item in &items {
                    ledger.start(item.number, item.due);
                }
                finished += self.apply(Verb::Finish, &items).await?;
            }
        };
        let finished = tokio::try_join!(work(), work(), work(), work())?;
        ledger.end();
        Ok(finished.0 + finished.1 + finished.2 + finished.3)
    }

    /// Closes the connections to the server.
    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Waits until the next one is due, and takes all due ones, in the order of their numbers; none if there are no more.
async fn due(ledger: &Ledger, next: &mut usize) -> Vec<Item> {
    let first = *next;
    let last = ledger.len().min(first + BATCH);
    if let (true, Ok(wait)) = (
        first < last,
        u64::try_from(ledger.item(first).due * 1_000 - ledger.now()),
    ) {
        // As long as a timer says, and perhaps a moment longer: never shorter.
        tokio::time::sleep(Duration::from_micros(wait)).await;
    }
    let now = ledger.now();
    let due: Vec<Item> = (first..last)
        .map(|number| ledger.item(number))
        .take_while(|item| item.due * 1_000 <= now)
        .collect();
    *next += due.len();
    due
}
