//! Runs statements on one connection, at one time of the table. What is written is durable once that is committed.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqliteConnection};

use super::connections::is_taken;
use super::statements::{self, DUE, MOST, REFILL, SET_ASIDE};
use crate::store::rules::{Capacity, NOBODY};
use crate::store::sql::codec::hex;
use crate::store::sql::{Cells, Driver, RowsRead, Value, codec, id, new_values, time, written_values};
use crate::store::table::{Columns, Found, Outcome, Range, Start, Unreadable, Which, Write};
use crate::store::{Claim, NewRow};
use crate::task::timestamp::millis;
use crate::{Kind, State, TaskId, Timestamp};

/// One connection, and the time of the table.
pub(super) struct Runner<'c> {
    driver: &'c mut SqliteConnection,
    now: Timestamp,
    /// What the last statement of a write ends with, such as a commit, which takes no trip of its own then.
    end: &'static str,
}

impl<'c> Runner<'c> {
    pub(super) fn new(driver: &'c mut SqliteConnection, now: Timestamp) -> Self {
        let end = "";
        Self { driver, now, end }
    }

    /// The same, whose write ends so.
    pub(super) fn ending(self, end: &'static str) -> Self {
        Self { end, ..self }
    }

    async fn fetch(&mut self, sql: String, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        self.driver
            .fetch(AssertSqlSafe(sql).into_sql_str(), &values)
            .await
    }

    pub(super) async fn ranges(
        &mut self,
        ranges: &[Range],
        columns: Columns,
    ) -> Result<Vec<Found>, sqlx::Error> {
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            found.push(self.range(range, columns).await?);
        }
        Ok(found)
    }

    async fn range(&mut self, range: &Range, columns: Columns) -> Result<Found, sqlx::Error> {
        if range.limit == 0 || range.bytes == 0 {
            return Ok(Found::default());
        }
        let mut values = Vec::with_capacity(6);
        values.extend(range.kind.as_ref().map(|kind| Value::Text(kind.to_string())));
        match range.from {
            Start::First => {}
            Start::Ago(ago) => values.push(time(self.now.shifted(-millis(ago)))),
            Start::After(at, id) => values.extend([time(at), Value::Bytes(id.as_bytes().to_vec())]),
        }
        values.extend(range.within.map(|within| time(self.now.after(within))));
        values.push(Value::count(range.limit));
        if range.kind.is_some() && range.bytes != usize::MAX {
            values.push(Value::count(range.bytes));
        }
        let rows = self.fetch(statements::range(range, columns), values).await?;
        Ok(RowsRead::of(rows).found)
    }

    pub(super) async fn count(
        &mut self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Vec<usize>, sqlx::Error> {
        let mut counts = Vec::with_capacity(spans.len());
        for span in spans {
            let until = time(self.now.after(*span));
            let values = vec![Value::Text(kind.to_string()), until, Value::count(most)];
            let rows = self.fetch(statements::count(state), values).await?;
            let count = rows.first().and_then(|row| row.first());
            counts.push(match count {
                Some(Value::Int(count)) => usize::try_from(*count).unwrap_or(0),
                _ => 0,
            });
        }
        Ok(counts)
    }

    /// Writes new rows; says of each whether it did.
    pub(super) async fn insert(&mut self, rows: &[&NewRow]) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut came = Vec::with_capacity(rows.len());
        let parts = rows.len().div_ceil(MOST);
        for (at, part) in rows.chunks(MOST).enumerate() {
            let end = if at + 1 == parts { self.end } else { "" };
            // Nearly always all of them are new, and that is said in few words.
            let all = statements::insert(part.len()) + end;
            match self.fetch(all, new_values(part, self.now)?).await {
                Ok(_) => came.extend(part.iter().map(|_| Outcome::Written)),
                Err(error) if is_taken(&error) => {
                    let absent = statements::insert_absent(part.len()) + end;
                    let values = new_values(part, self.now)?;
                    let mut written = ids(self.fetch(absent, values).await?);
                    // Of twins the first.
                    came.extend(part.iter().map(|new| Outcome::of(written.remove(&new.id))));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(came)
    }

    /// Writes what has become of rows; says of each whether it did.
    pub(super) async fn write(&mut self, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let refills: Vec<_> = writes.iter().filter(|write| write.refill).collect();
        let parts = writes.len().div_ceil(MOST);
        let mut written = BTreeSet::new();
        for (at, part) in writes.chunks(MOST).enumerate() {
            let is_last = at + 1 == parts && refills.is_empty();
            let end = if is_last { self.end } else { "" };
            let values = part.iter().flat_map(|write| written_values(write)).collect();
            let rows = self.fetch(statements::write(part.len()) + end, values);
            written.append(&mut ids(rows.await?));
        }
        for (at, write) in refills.iter().enumerate() {
            let end = if at + 1 == refills.len() { self.end } else { "" };
            // A version that no row has, where it was not written: then this changes nothing.
            let version = match written.contains(&write.row.id) {
                true => Value::version(write.row.version),
                false => Value::Int(-1),
            };
            let values = vec![
                Value::Bytes(write.row.payload.clone()),
                Value::Text(codec::headers(&write.row.headers)?),
                Value::of_int(write.row.max_attempts),
                Value::Bytes(write.row.id.as_bytes().to_vec()),
                version,
            ];
            self.fetch(REFILL.to_owned() + end, values).await?;
        }
        Ok(writes
            .iter()
            .map(|write| Outcome::of(written.contains(&write.row.id)))
            .collect())
    }

    /// Claims what a look has found before the lock was had, within a transaction that keeps others from it.
    pub(super) async fn claim(
        &mut self,
        which: Which<'_>,
        claim: &Claim,
        look: Found,
    ) -> Result<Found, sqlx::Error> {
        let mut found = Found::default();
        // Another call may have had rows since: then once more, as from now on none can. Not until all are written, as a trigger
        // of the application's may keep a row as it is.
        for look in [Some(look), None] {
            let mut due = match look {
                Some(look) => look,
                None => self.due(which, claim).await?,
            };
            self.set_aside(&due.unreadable, self.now.after(claim.lease))
                .await?;
            found.unreadable.append(&mut due.unreadable);
            let mut capacity = Capacity::new(claim);
            found.rows.iter().for_each(|row| capacity.take_room(row));
            let writes = capacity.claim_all(which, due.rows, self.now);
            let came = self.write(&writes.iter().collect::<Vec<_>>()).await?;
            let are_all_written = came.iter().all(Outcome::is_written);
            let claimed = writes.into_iter().zip(came).filter(|(_, came)| came.is_written());
            found.rows.extend(claimed.map(|(write, _)| write.row));
            if are_all_written {
                break;
            }
        }
        Ok(found)
    }

    /// What a claim is to look at, of each kind so much as it has room for, as far as it has room for their bytes.
    pub(super) async fn due(&mut self, which: Which<'_>, claim: &Claim) -> Result<Found, sqlx::Error> {
        let ids = match which {
            Which::These(wanted) => wanted.iter().map(|(id, _)| hex(id.as_bytes())).collect(),
            Which::Due => self.longest_due(claim).await?,
        };
        if ids.is_empty() {
            return Ok(Found::default());
        }
        let ids = Value::Text(codec::json(&ids)?);
        let values = vec![ids, time(self.now), Value::count(claim.bytes)];
        let rows = self.fetch(statements::these(), values).await?;
        Ok(RowsRead::of(rows).found)
    }

    /// The digits of the ids of what is due, of each kind that there is room for: the longest due first, whatever their kind.
    async fn longest_due(&mut self, claim: &Claim) -> Result<Vec<String>, sqlx::Error> {
        let mut due = Vec::new();
        for (kind, room) in claim.room.iter().filter(|(_, room)| **room > 0) {
            let values = vec![Value::Text(kind.to_string()), time(self.now), Value::count(*room)];
            due.extend(self.fetch(DUE.to_owned(), values).await?);
        }
        due.sort_unstable();
        let id = |cells: Cells| match cells.into_iter().nth(1) {
            Some(Value::Bytes(id)) => Some(hex(&id)),
            _ => None,
        };
        Ok(due.into_iter().filter_map(id).collect())
    }

    /// Puts rows that cannot be read out of the way until then.
    pub(super) async fn set_aside(
        &mut self,
        rows: &[Unreadable],
        until: Timestamp,
    ) -> Result<(), sqlx::Error> {
        for unreadable in rows {
            let owner = Value::Text(NOBODY.to_owned());
            let row = Value::Bytes(unreadable.row.clone());
            let values = vec![owner, time(until), row, time(self.now), time(self.now)];
            self.fetch(SET_ASIDE.to_owned(), values).await?;
        }
        Ok(())
    }
}

fn ids(rows: Vec<Cells>) -> BTreeSet<TaskId> {
    rows.iter().filter_map(|row| id(row.first()?)).collect()
}
