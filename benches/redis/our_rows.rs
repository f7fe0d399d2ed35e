//! The same through the library, as a service uses it: scheduler, worker, and the rows in Redis.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use delayline::store::{RedisStore, Target, When};
use delayline::{Context, NewTask, Outcome, Policy, Scheduler, TaskId, Timestamp, Worker};

use crate::Error;
use crate::bare_rows::key;
use crate::side::{Id, Side};

const KIND: &str = "bench";

#[derive(Clone)]
pub(crate) struct OurRows {
    scheduler: Scheduler,
}

fn task(id: &Id, delay: Duration) -> NewTask {
    NewTask::from_bytes(KIND, [b'x'; 100])
        .id(TaskId::from_bytes(*id))
        .key(key(id))
        .after(delay)
}

impl Side for OurRows {
    async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self {
            scheduler: Scheduler::new(RedisStore::new(url)?),
        })
    }

    async fn add(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        self.scheduler
            .schedule_all(ids.iter().map(|id| task(id, delay)))
            .await?;
        Ok(())
    }

    async fn add_each(&self, ids: &[(Id, Duration)]) -> Result<(), Error> {
        // By the calendar and rounded up, as on the bare side: a delay would count from when the server has it.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let due = |delay: Duration| Timestamp::from_millis((now + delay).as_micros().div_ceil(1_000) as i64);
        let tasks = ids.iter().map(|(id, delay)| task(id, *delay).at(due(*delay)));
        self.scheduler.schedule_all(tasks).await?;
        Ok(())
    }

    async fn cancel(&self, ids: &[Id]) -> Result<(), Error> {
        let targets = ids.iter().map(|id| Target::Id(TaskId::from_bytes(*id)));
        self.scheduler.cancel_all(targets).await?;
        Ok(())
    }

    async fn reschedule(&self, ids: &[Id], delay: Duration) -> Result<(), Error> {
        let moves = ids
            .iter()
            .map(|id| (Target::Id(TaskId::from_bytes(*id)), When::After(delay)));
        self.scheduler.reschedule_all(moves).await?;
        Ok(())
    }

    async fn drain(
        &self,
        count: usize,
        due: impl Fn(&Id) -> Instant + Send + Sync + Clone + 'static,
    ) -> Result<Vec<Duration>, Error> {
        let late = Arc::new(Mutex::new(Vec::with_capacity(count)));
        let noted = Arc::clone(&late);
        let handler = move |context: Context| {
            let late = Instant::now().saturating_duration_since(due(context.id().as_bytes()));
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(late);
            async { Ok(Outcome::Done) }
        };
        let worker = Worker::new(&self.scheduler).handle_bytes(KIND, Policy::new(), handler);
        let finished = async {
            while self.scheduler.stats().done < count as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        worker.run_until(finished).await?;
        let late = std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(late)
    }
}
