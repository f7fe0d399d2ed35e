//! Wake-ups by the library's backend alone, without rows.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use delayline::backend::{Arrival, Backend as _, Departure, RedisBackend, Wake};
use delayline::{Kind, TaskId};
use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

use super::super::Error;
use super::super::idle::Working;
use super::super::ledger::{Ledger, ServerClock};
use super::super::side::{Item, KIND, Pending, Side, Verb};
use super::super::workload::BATCH;
use super::bare::{id, number};
use super::taking::{self, Taking};

/// After how long who waits looks whether the others have taken the last.
const LOOK: Duration = Duration::from_millis(500);

static NAME: LazyLock<Kind> = LazyLock::new(|| KIND.into());

#[derive(Clone)]
pub(crate) struct Wakes {
    pub(crate) backend: Arc<RedisBackend>,
    url: Arc<str>,
    /// By which delays are told from times.
    clock: Arc<OnceCell<ServerClock>>,
}

impl Wakes {
    pub(super) fn new(url: &str, prefix: &str) -> Result<Self, Error> {
        Ok(Self {
            backend: Arc::new(RedisBackend::builder(url).prefix(prefix).build()?),
            url: url.into(),
            clock: Arc::default(),
        })
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let client = redis::Client::open(&*self.url)?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    async fn departures(&self, items: &[Item], version: u64) -> Result<Vec<Departure>, Error> {
        let clock = self.clock().await?;
        let departure = |item: &Item| {
            let left = u64::try_from(item.due * 1_000 - clock.now()).unwrap_or(0);
            Departure {
                wake: wake(item.number, version),
                delay: Duration::from_micros(left),
            }
        };
        Ok(items.iter().map(departure).collect())
    }
}

pub(crate) fn wake(number: usize, version: u64) -> Wake {
    Wake {
        id: TaskId::from_bytes(id(number)),
        kind: NAME.clone(),
        version,
    }
}

impl Side for Wakes {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let old = || -> Vec<Wake> { items.iter().map(|item| wake(item.number, 1)).collect() };
        match verb {
            Verb::Add => self.backend.send(&self.departures(items, 1).await?).await?,
            Verb::Cancel => self.backend.remove(&old()).await?,
            // As a scheduler does it: a new version is sent, and the old one removed.
            Verb::Move => {
                let (new, old) = (self.departures(items, 2).await?, old());
                let (sent, removed) = tokio::join!(self.backend.send(&new), self.backend.remove(&old));
                sent?;
                removed?;
            }
        }
        Ok(items.len())
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        taking::drain(self, ledger).await
    }

    /// Which are due soon it does not tell.
    async fn pending(&self) -> Result<Pending, Error> {
        let shards = self.backend.checkup().await?.contents;
        let all = shards.iter().map(|shard| shard.held).sum::<u64>();
        Ok(Pending {
            soon: 0,
            all: usize::try_from(all)?,
        })
    }

    async fn clock(&self) -> Result<ServerClock, Error> {
        let asked = async { super::clock(&self.connection().await?).await };
        self.clock.get_or_try_init(|| asked).await.copied()
    }

    async fn close(self) -> Result<(), Error> {
        Ok(self.backend.close().await?)
    }
}

impl Working for Wakes {
    async fn work(self, started: UnboundedSender<usize>) -> Result<(), Error> {
        loop {
            // Not abandoned again and again: that would be asked more.
            let arrivals = self.backend.receive(BATCH).await?;
            for number in arrivals.iter().filter_map(number_of) {
                // Nobody hears of the last ones.
                let _ = started.send(number);
            }
            self.backend.acknowledge(arrivals).await;
        }
    }
}

/// The number of the task that an arrival is for.
fn number_of(arrival: &Arrival) -> Option<usize> {
    number(arrival.wake.id.as_bytes())
}

impl Taking for Wakes {
    type Taken = Arrival;

    async fn take(&self) -> Result<Vec<(usize, Arrival)>, Error> {
        // A receiver may be abandoned: what it has not given comes again.
        let Ok(arrivals) = timeout(LOOK, self.backend.receive(BATCH)).await else {
            return Ok(Vec::new());
        };
        let numbered = arrivals?
            .into_iter()
            .filter_map(|arrival| Some((number_of(&arrival)?, arrival)));
        Ok(numbered.collect())
    }

    async fn finish(&self, taken: Vec<Arrival>) -> Result<(), Error> {
        self.backend.acknowledge(taken).await;
        Ok(())
    }
}
