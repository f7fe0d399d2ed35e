//! The table in a file of its own connections: one that writes, a few that read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::connections::{failed, refusal};
use super::driver::DIALECT;
use super::{File, NAME, schema};
use crate::store::sql::{Blame, Keep, by_parts};
use crate::store::table::{Columns, Found, Outcome, Range, Table, Unreadable, Which, Write};
use crate::store::{Claim, NewRow, Noted, Stamped};
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// What makes the last statement of a transaction durable.
const COMMIT: &str = "; COMMIT";

/// The rows of a file.
#[derive(Clone)]
pub(super) struct FileTable(pub(super) Arc<File>);

/// The rows as one connection has them.
pub(super) fn keep(connection: &mut SqliteConnection, now: Timestamp) -> Keep<'_, SqliteConnection> {
    Keep::new(connection, &DIALECT, now)
}

/// Reads on a connection that is lent and given back, at a time that is taken before: gives what it read, and the time.
macro_rules! reading {
    ($table:expr, |$keep:ident| $read:expr) => {
        async {
            let mut lent = $table.0.readers.lend().await?;
            let now = $table.0.clock.now();
            let mut $keep = keep(&mut lent, now);
            let found = $read;
            lent.give_back();
            Ok(Stamped { now, found })
        }
        .await
        .map_err(failed)
    };
}

impl FileTable {
    /// Writes rows, by parts if the file refuses some of them; a part is written whole or not at all.
    async fn by_parts<F>(&self, count: usize, write: impl Fn(Vec<usize>) -> F) -> Result<Vec<Outcome>, Error>
    where
        F: Future<Output = Result<Vec<Outcome>, sqlx::Error>>,
    {
        let step = |places: Vec<usize>| {
            let write = write(places);
            async { Ok(write.await?.into_iter().map(Ok).collect()) }
        };
        let came = by_parts(vec![(0..count).collect()], refusal, step).await;
        let outcome = |came: Result<Outcome, Blame>| came.unwrap_or_else(|blame| blame.outcome(NAME));
        Ok(came.map_err(failed)?.into_iter().map(outcome).collect())
    }
}

#[async_trait]
impl Table for FileTable {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A file has one writer: who comes while it writes is better off with all the others in the next call.
    fn calls(&self) -> Option<usize> {
        Some(1)
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.0.clock.now())
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        reading!(self, |keep| keep.read(ids, keys, columns).await?)
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        reading!(self, |keep| keep.ranges(ranges, columns).await?)
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        reading!(self, |keep| keep.count(kind, state, spans, most).await?)
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        let first = std::sync::OnceLock::new();
        let insert = |places: Vec<usize>| {
            let (part, first) = (
                &rows[places.first().copied().unwrap_or(0)..][..places.len()],
                &first,
            );
            async move {
                if part.is_empty() {
                    return Ok(Vec::new());
                }
                let mut writing = self.0.writer.write().await?;
                let now = writing.now;
                let came = keep(&mut writing, now).ending(COMMIT).insert(part).await?;
                writing.end()?;
                first.get_or_init(|| now);
                Ok(came)
            }
        };
        let found = self.by_parts(rows.len(), insert).await?;
        let now = first.into_inner().unwrap_or_else(|| self.0.clock.now());
        Ok(Stamped { now, found })
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let write = |places: Vec<usize>| async move {
            let part: Vec<_> = places.into_iter().map(|place| &writes[place]).collect();
            if part.is_empty() {
                return Ok(Vec::new());
            }
            let mut writing = self.0.writer.write().await?;
            let now = writing.now;
            let came = keep(&mut writing, now).ending(COMMIT).write(&part).await?;
            writing.end()?;
            Ok(came)
        };
        self.by_parts(writes.len(), write).await
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Result<Stamped<Found>, Error> {
        // Where nothing is to be claimed nobody has to wait for the lock.
        let Stamped { now, found } = reading!(self, |keep| keep.has_claimable(which, claim).await?)?;
        if !found {
            let found = Found::default();
            return Ok(Stamped { now, found });
        }
        let claimed = async {
            let mut writing = self.0.writer.write().await?;
            let now = writing.now;
            let found = keep(&mut writing, now).ending(COMMIT).claim(which, claim).await?;
            match found.rows.is_empty() {
                true => writing.commit().await?,
                false => writing.end()?,
            }
            Ok(Stamped { now, found })
        };
        claimed.await.map_err(failed)
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
        let set = async {
            let mut writing = self.0.writer.write().await?;
            let now = writing.now;
            keep(&mut writing, now).set_aside(rows, now.after(pause)).await?;
            writing.commit().await
        };
        set.await.map_err(failed)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let past = reading!(self, |keep| keep.past(states, limit).await?)?.found;
        if past.is_empty() {
            return Ok(0);
        }
        let removed = async {
            let mut writing = self.0.writer.write().await?;
            let now = writing.now;
            let removed = keep(&mut writing, now).remove(states, &past).await?;
            writing.commit().await?;
            Ok(removed)
        };
        removed.await.map_err(failed)
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        Ok(reading!(self, |keep| keep.kinds(state, after, limit).await?)?.found)
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        Ok(reading!(self, |keep| keep.history(id).await?)?.found)
    }

    async fn check(&self) -> Result<(), Error> {
        schema::check(&self.0).await.map_err(failed)
    }
}
