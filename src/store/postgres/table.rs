//! The table, as an engine has it kept.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::codec::{self, name, span, text, uuids};
use super::columns::{NewRows, Writes};
use super::range::{self, Ranges};
use super::read::{Told, ids, number_of};
use super::session::Session;
use super::sql::Statements;
use super::{NAME, errors, schema};
use crate::store::sql::codec::{limit, number};
use crate::store::sql::{Blame, STATEMENT, batches, by_parts, clip, found, size};
use crate::store::table::{Columns, Found, Outcome, Range, Table, Unreadable, Which, Write};
use crate::store::turns::CALLS;
use crate::store::{Claim, NewRow, Noted, Stamped};
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// The rows, by statements that a session sends.
#[derive(Clone)]
pub(super) struct PgTable<S>(pub(super) S);

impl<S: Session> PgTable<S> {
    fn statements(&self) -> &Statements {
        &self.0.database().statements
    }

    /// The store's error for what a call failed of.
    pub(super) fn failed(&self, error: sqlx::Error) -> Error {
        self.0.database().failed(error)
    }

    /// What came of each of a batch that is written by `step`, whose statements carry no more than they may: where some rows are
    /// in the way, the others are written without them.
    async fn by_parts<F>(
        &self,
        places: &[usize],
        size: impl Fn(usize) -> usize,
        step: impl Fn(Vec<usize>) -> F,
    ) -> Result<Vec<Outcome>, Error>
    where
        F: Future<Output = Result<Vec<Outcome>, sqlx::Error>>,
    {
        let apart = batches(places, usize::MAX, STATEMENT, |place| size(*place));
        let apart = apart.map(<[usize]>::to_vec).collect();
        let step = |places| {
            let step = step(places);
            async { Ok(step.await?.into_iter().map(Ok).collect()) }
        };
        let came = by_parts(apart, |error| self.0.blame(error), step).await;
        let came = came.map_err(|error| self.failed(error))?.into_iter();
        let outcome = |came: Result<Outcome, Blame>| came.unwrap_or_else(|blame| blame.outcome(NAME));
        Ok(came.map(outcome).collect())
    }

    /// Writes new rows at a time, or else now; says when, and which.
    async fn add(
        &self,
        rows: &[&NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let columns = NewRows::of(rows)?;
        let told = self.0.rows(&|| columns.query(self.0.database(), now)).await?;
        let told = told.first().ok_or(sqlx::Error::RowNotFound)?;
        let found = match told.try_get::<Option<Vec<Uuid>>, _>(1)? {
            Some(some) => some.into_iter().map(TaskId::from).collect(),
            None => rows.iter().map(|row| row.id).collect(),
        };
        let now = codec::time(told, 0)?;
        Ok(Stamped { now, found })
    }

    async fn write_part(&self, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let columns = Writes::of(writes)?;
        let (write, channel) = (self.0.write(), self.0.channel());
        let written = ids(&self.0.rows(&|| columns.query(write, channel)).await?)?;
        let mut same = BTreeSet::new();
        if written.len() < writes.len() {
            same = ids(&self.0.rows(&|| columns.same(self.0.database())).await?)?;
        }
        let outcome = |write: &&Write| match write.row.id {
            id if written.contains(&id) => Outcome::Written,
            id if same.contains(&id) => Outcome::Locked,
            _ => Outcome::Lost,
        };
        Ok(writes.iter().map(outcome).collect())
    }
}

#[async_trait]
impl<S: Session> Table for PgTable<S> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> Option<usize> {
        Some(CALLS)
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        let told = self.0.rows(&|| sqlx::query(self.statements().now.clone())).await;
        let now = told.and_then(|told| codec::time(told.first().ok_or(sqlx::Error::RowNotFound)?, 0));
        now.map_err(|error| self.failed(error))
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        let statements = self.statements();
        let by = match columns {
            Columns::All => [&statements.by_ids, &statements.by_keys],
            Columns::Lean => [&statements.by_ids_lean, &statements.by_keys_lean],
        };
        self.of_both(by, ids, keys, false).await
    }

    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Result<Stamped<Found>, Error> {
        if !self.0.is_joined() {
            return self.read(ids, keys, Columns::All).await;
        }
        let by = [&self.statements().hold_ids, &self.statements().hold_keys];
        self.of_both(by, ids, keys, true).await
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        if ranges.is_empty() {
            let (now, found) = (self.now().await?, Vec::new());
            return Ok(Stamped { now, found });
        }
        let Ranges { text, values } = Ranges::of(&self.0.database().names, ranges, columns);
        let make = || {
            let query = sqlx::query(AssertSqlSafe(text.clone()));
            values.iter().fold(query, |query, value| match value {
                range::Value::Number(number) => query.bind(*number),
                range::Value::Kind(kind) => query.bind(kind.as_deref()),
                range::Value::Id(id) => query.bind(*id),
            })
        };
        let told = self.0.rows(&make).await.and_then(|rows| Told::of(&rows));
        let Told { now, rows } = told.map_err(|error| self.failed(error))?;
        let mut of_ranges = vec![Vec::new(); ranges.len()];
        for cells in rows {
            let of_range = usize::try_from(number_of(&cells)).ok();
            if let Some(of_range) = of_range.and_then(|place| of_ranges.get_mut(place)) {
                of_range.push(cells);
            }
        }
        let found = ranges.iter().zip(of_ranges).map(|(range, rows)| {
            let mut found = found(rows, |_| None);
            let mut bytes = 0_usize;
            found.rows.retain(|row| {
                let fits = bytes < range.bytes;
                bytes = bytes.saturating_add(row.payload.len());
                fits
            });
            found
        });
        let found = found.collect();
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let (kind, millis) = (
            name(kind.as_str()),
            Vec::from_iter(spans.iter().copied().map(span)),
        );
        let make = || {
            sqlx::query(self.statements().count.clone())
                .bind(kind.as_deref())
                .bind(number(state))
                .bind(&*millis)
                .bind(limit(most))
        };
        let counted = async {
            let told = self.0.rows(&make).await?;
            let told = told.first().ok_or(sqlx::Error::RowNotFound)?;
            let counts: Vec<i64> = told.try_get(1)?;
            let found = counts
                .into_iter()
                .map(|count| usize::try_from(count).unwrap_or(0));
            Ok(Stamped {
                now: codec::time(told, 0)?,
                found: found.collect(),
            })
        };
        counted.await.map_err(|error| self.failed(error))
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        let mut came: Vec<_> = rows
            .iter()
            .map(|row| errors::refuses(row, errors::LONGEST).map(|blame| blame.outcome(NAME)))
            .collect();
        let mut places: Vec<_> = (0..rows.len()).filter(|&place| came[place].is_none()).collect();
        let ids: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        // In the order of their keys two batches that meet wait for one another, in any other they would end in a
        // deadlock. Of twins the first counts, so those of an id have to stay in their order.
        if ids.len() == rows.len() {
            places.sort_by_key(|&place| (&rows[place].kind, &rows[place].key));
        }
        let first = OnceLock::new();
        let add = |part: Vec<usize>| {
            let first = &first;
            async move {
                let part: Vec<_> = part.into_iter().map(|place| &rows[place]).collect();
                if part.is_empty() {
                    return Ok(Vec::new());
                }
                // All are of one moment.
                let Stamped { now, mut found } = self.add(&part, first.get().copied()).await?;
                first.get_or_init(|| now);
                // Of twins the first.
                let outcome = |row: &&NewRow| match found.remove(&row.id) {
                    true => Outcome::Written,
                    false => Outcome::Lost,
                };
                Ok(part.iter().map(outcome).collect())
            }
        };
        let written = self.by_parts(&places, |place| size(&rows[place]), add).await?;
        for (place, outcome) in places.into_iter().zip(written) {
            came[place] = Some(outcome);
        }
        let now = match first.into_inner() {
            Some(now) => now,
            None => self.now().await?,
        };
        let found = came
            .into_iter()
            .map(|came| came.unwrap_or(Outcome::Lost))
            .collect();
        Ok(Stamped { now, found })
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let size = |place: usize| {
            let Write {
                row, refill, noted, ..
            } = &writes[place];
            let error = row.last_error.as_deref().map_or(0, |error| clip(error).len());
            error + noted.history.len() + if *refill { row.payload.len() } else { 0 }
        };
        let step = |part: Vec<usize>| async move {
            let part: Vec<_> = part.into_iter().map(|place| &writes[place]).collect();
            match part.is_empty() {
                true => Ok(Vec::new()),
                false => self.write_part(&part).await,
            }
        };
        let places: Vec<_> = (0..writes.len()).collect();
        self.by_parts(&places, size, step).await
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Result<Stamped<Found>, Error> {
        let room = claim.room.iter().filter(|(_, room)| **room > 0);
        let room = room.map(|(kind, room)| (name(kind.as_str()), limit(*room)));
        let (kinds, room): (Vec<_>, Vec<_>) = room.unzip();
        let (owner, noted) = (text(&claim.owner), claim.claimed().map(|noted| text(&noted)));
        let asked = match which {
            Which::Due => None,
            Which::These(rows) => {
                let versions: Vec<_> = rows.iter().map(|&(_, version)| codec::version(version)).collect();
                Some((uuids(rows.iter().map(|&(id, _)| id)), versions))
            }
        };
        let make = || {
            let query = match &asked {
                None => sqlx::query(self.statements().claim_due.clone()),
                Some((ids, versions)) => sqlx::query(self.statements().claim_these.clone())
                    .bind(&**ids)
                    .bind(&**versions),
            };
            query
                .bind(&*kinds)
                .bind(&*room)
                .bind(&*owner)
                .bind(span(claim.lease))
                .bind(limit(claim.bytes))
                .bind(noted.as_deref())
        };
        // One that cannot be read is claimed as well, by nobody who would hear of it, until the lease ends.
        let claimed = self.0.rows(&make).await.and_then(|rows| Told::of(&rows));
        let claimed = claimed.map_err(|error| self.failed(error))?;
        Ok(claimed.stamped(|_| None))
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
        let ids = uuids(rows.iter().filter_map(|row| row.id));
        let make = || {
            sqlx::query(self.statements().set_aside.clone())
                .bind(&*ids)
                .bind(span(pause))
        };
        let set = self.0.rows(&make).await;
        set.map(drop).map_err(|error| self.failed(error))
    }

    async fn remove(&self, states: &[State], most: usize) -> Result<u64, Error> {
        let states: Vec<_> = states.iter().map(|state| number(*state)).collect();
        let make = || {
            sqlx::query(self.statements().remove.clone())
                .bind(&*states)
                .bind(limit(most))
                .bind(states.iter().min().copied())
                .bind(states.iter().max().copied())
        };
        let removed = self.0.rows(&make).await;
        removed
            .map(|rows| rows.len() as u64)
            .map_err(|error| self.failed(error))
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, most: usize) -> Result<Vec<Kind>, Error> {
        let after = text(after.map_or("", Kind::as_str));
        let make = || {
            sqlx::query(self.statements().kinds.clone())
                .bind(number(state))
                .bind(&*after)
                .bind(limit(most))
        };
        let kinds = self.0.rows(&make).await.and_then(|rows| {
            let kind = |row: &PgRow| row.try_get(0).map(|kind: &str| Kind::from(kind));
            rows.iter().map(kind).collect()
        });
        kinds.map_err(|error| self.failed(error))
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let make = || sqlx::query(self.statements().noted.clone()).bind(codec::uuid(id));
        let noted = self.0.rows(&make).await.and_then(|rows| {
            let Some(row) = rows.first() else {
                return Ok(Noted::default());
            };
            let (history, sent) = (row.try_get(0)?, row.try_get(1)?);
            Ok(Noted { history, sent })
        });
        noted.map_err(|error| self.failed(error))
    }

    async fn check(&self) -> Result<(), Error> {
        let checked = schema::check(self.0.database()).await;
        checked.map_err(|error| self.failed(error))
    }

    async fn notified(&self) {
        self.0.database().listener.notified().await;
    }
}
