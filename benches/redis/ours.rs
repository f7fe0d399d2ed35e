//! The same through the library.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use delayline::backend::{Arrival, Backend, Departure, RedisBackend, Wake};
use delayline::{Kind, TaskId};

use crate::Error;
use crate::side::{self, Id, Side, Taking};

static KIND: LazyLock<Kind> = LazyLock::new(|| "bench".into());

#[derive(Clone)]
pub(crate) struct Ours {
    backend: Arc<RedisBackend>,
}

fn wake(id: &Id, version: u64) -> Wake {
    Wake {
        id: TaskId::from_bytes(*id),
        kind: KIND.clone(),
        version,
    }
}

fn departure(id: &Id, version: u64, delay: Duration) -> Departure {
    Departure {
        wake: wake(id, version),
        delay,
    }
}

impl Side for Ours {
    async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self {
            backend: Arc::new(RedisBackend::new(url)?),
        })
    }

    async fn add(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        let batch: Vec<_> = ids.iter().map(|id| departure(id, 1, delay)).collect();
        Ok(self.backend.send(&batch).await?)
    }

    async fn add_each(&self, ids: &[(Id, Duration)]) -> Result<(), Error> {
        let batch: Vec<_> = ids.iter().map(|(id, delay)| departure(id, 1, *delay)).collect();
        Ok(self.backend.send(&batch).await?)
    }

    async fn cancel(&self, ids: &[Id]) -> Result<(), Error> {
        let wakes: Vec<_> = ids.iter().map(|id| wake(id, 1)).collect();
        Ok(self.backend.remove(&wakes).await?)
    }

    /// As a scheduler does it: a new version is sent, and the old one removed.
    async fn reschedule(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        let batch: Vec<_> = ids.iter().map(|id| departure(id, 2, delay)).collect();
        let (sent, removed) = tokio::join!(self.backend.send(&batch), self.cancel(ids));
        sent?;
        removed
    }

    async fn drain(
        &self,
        count: usize,
        due: impl Fn(&Id) -> Instant + Send + Sync + Clone + 'static,
    ) -> Result<Vec<Duration>, Error> {
        side::drain(self, count, due).await
    }
}

impl Taking for Ours {
    type Taken = Arrival;

    async fn take(&self) -> Result<Vec<(Id, Arrival)>, Error> {
        let arrivals = self.backend.receive(500).await?;
        Ok(arrivals
            .into_iter()
            .map(|arrival| (*arrival.wake.id.as_bytes(), arrival))
            .collect())
    }

    async fn finish(&self, taken: Vec<Arrival>) -> Result<(), Error> {
        self.backend.acknowledge(taken).await;
        Ok(())
    }
}
