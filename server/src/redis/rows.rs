//! Reports the rows that a Redis keeps, for operators.

use std::collections::BTreeMap;
use std::time::Duration;

use delayline::store::{Page, Paused, RedisStore, Store};
use delayline::{Error, Kind, State, Timestamp};
use serde::{Deserialize, Serialize};

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
    /// For how many ms the first scheduled row is due of a kind that is not paused; 0 if none is.
    pub(super) due_for_ms: u64,
    /// For how many ms a lease of a running row has ended that no worker has taken over, of the first rows of each kind.
    pub(super) ended_for_ms: u64,
}

/// Until when kinds are paused; none: until they are resumed.
type Pauses = BTreeMap<String, Option<Timestamp>>;

/// The part of a pause's payload that says when it ends.
#[derive(Default, Deserialize)]
struct Ends {
    until: Option<Timestamp>,
}

/// The pauses. A scheduler that is asked for them removes those that are over, and this is to change nothing.
async fn pauses(store: &RedisStore) -> Result<Pauses, Error> {
    let (mut pauses, mut page) = (
        Pauses::new(),
        Page::new(Paused::KIND, State::Scheduled).limit(ROWS),
    );
    loop {
        let rows = store.list(&page).await?;
        let Some(last) = rows.last() else {
            return Ok(pauses);
        };
        page.after = Some((last.due_at, last.id));
        pauses.extend(rows.into_iter().filter_map(|row| {
            // One that cannot be read is a pause all the same, as for workers.
            let ends: Ends = serde_json::from_slice(&row.payload).unwrap_or_default();
            Some((row.key?.to_string(), ends.until))
        }));
    }
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
        let pauses = pauses(store).await?;
        for state in State::ALL {
            let mut after = None;
            loop {
                let kinds = store.kinds(state, after.as_ref(), KINDS).await?;
                // Pauses are no tasks.
                for kind in kinds.iter().filter(|kind| kind.as_str() != Paused::KIND) {
                    rows.add(store, state, kind, &pauses).await?;
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

    async fn add(
        &mut self,
        store: &RedisStore,
        state: State,
        kind: &Kind,
        pauses: &Pauses,
    ) -> Result<(), Error> {
        let counted = store
            .due_within(kind, state, &[Duration::MAX], usize::MAX)
            .await?;
        let count = counted.found.into_iter().sum::<usize>();
        let since = |time: Timestamp| counted.now.millis_since(time).max(0).unsigned_abs();
        match state {
            State::Scheduled => {
                self.scheduled += count;
                let paused = pauses.get(kind.as_str());
                if paused.is_some_and(|until| until.is_none_or(|until| until > counted.now)) {
                    return Ok(());
                }
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
