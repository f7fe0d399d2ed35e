//! Reports the rows that a Redis keeps, for operators.

use std::time::Duration;

use delayline::store::{Page, RedisStore, Store};
use delayline::{Error, Kind, State, Timestamp};
use serde::Serialize;

/// How many kinds are asked for at once, and how many rows of each kind are read.
const KINDS: usize = 100;
const ROWS: usize = 100;

/// What is kept in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Rows {
    pub(super) shards: u16,
    pub(super) scheduled: usize,
    pub(super) running: usize,
    pub(super) done: usize,
    pub(super) dead: usize,
    pub(super) cancelled: usize,
    /// For how many ms the first scheduled row is due; 0 if none is.
    pub(super) due_for_ms: u64,
    /// For how many ms a lease of a running row has ended that no worker has taken over, of the first rows of each kind.
    pub(super) ended_for_ms: u64,
}

impl Rows {
    /// Reads what is kept, and changes nothing; none where nothing was ever kept.
    pub(super) async fn of(store: &RedisStore) -> Result<Option<Self>, Error> {
        let Some(shards) = store.shards().await? else {
            return Ok(None);
        };
        let mut rows = Self {
            shards,
            ..Self::default()
        };
        for state in State::ALL {
            let mut after = None;
            loop {
                let kinds = store.kinds(state, after.as_ref(), KINDS).await?;
                for kind in &kinds {
                    rows.add(store, state, kind).await?;
                }
                after = kinds.last().cloned();
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(Some(rows))
    }

    pub(super) fn count(&self) -> usize {
        self.scheduled + self.running + self.done + self.dead + self.cancelled
    }

    async fn add(&mut self, store: &RedisStore, state: State, kind: &Kind) -> Result<(), Error> {
        let counted = store
            .due_within(kind, state, &[Duration::MAX], usize::MAX)
            .await?;
        let count = counted.found.into_iter().sum::<usize>();
        let since = |time: Timestamp| counted.now.millis_since(time).max(0).unsigned_abs();
        match state {
            State::Scheduled => {
                self.scheduled += count;
                let first = store.list(&Page::new(kind.clone(), state).limit(1)).await?;
                let due_for = first.first().map_or(0, |task| since(task.due_at));
                self.due_for_ms = self.due_for_ms.max(due_for);
            }
            State::Running => {
                self.running += count;
                let running = store.list(&Page::new(kind.clone(), state).limit(ROWS)).await?;
                let ended = running.iter().filter_map(|task| task.wake_at).map(since);
                self.ended_for_ms = self.ended_for_ms.max(ended.max().unwrap_or(0));
            }
            State::Done => self.done += count,
            State::Dead => self.dead += count,
            State::Cancelled => self.cancelled += count,
        }
        Ok(())
    }
}
