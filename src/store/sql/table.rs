//! The table of every SQL store: what is the same whatever the database, over a session that sends its statements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::SqlStr;

use super::batches::{batches, size};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::clip::clip;
use super::codec::hex;
use super::errors::{Limits, RowError};
use super::parts::by_parts;
use super::record::{RowsRead, kind, text};
use super::value::{Cells, Value};
use crate::store::table::{Columns, Found, Outcome, Range, Table, Unreadable, Which, Write};
use crate::store::{Claim, NewRow, Noted, Stamped, state_code};
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// The rows of a database, by statements that a session sends.
#[derive(Clone)]
pub(in crate::store) struct SqlTable<S>(pub(in crate::store) S);

/// Statements that all databases have, each in its own words. Their values are, in this order:
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Query {
    /// The rows of ids: [ids](Value::Ids).
    ByIds(Columns),
    /// The live row of each of some kinds and keys, else its newest, each with the place of its key: [`Session::keys`].
    ByKeys(Columns),
    /// The first kinds after one of which there are rows in a state: state, kind, how many.
    Kinds,
    /// What is noted of a row: its id.
    History,
}

/// What was found, and when.
pub(in crate::store) type Answered<T> = Result<Stamped<T>, sqlx::Error>;

/// Sends statements for [`SqlTable`] (see `table!` below): on connections of the store's own, or within a transaction that a
/// service has opened, which asks for nothing but to read, hold, insert and write.
#[async_trait]
pub(in crate::store) trait Session: Send + Sync {
    const NAME: &'static str;
    /// As [`Table::calls`].
    const CALLS: usize;
    /// How many rows one statement writes at the most.
    const MOST: usize = usize::MAX;

    /// The store's error for what the driver said.
    fn failed(&self, error: sqlx::Error) -> Error;

    /// Which row a statement has failed of, if the session can go on without it.
    fn classify(&self, error: &sqlx::Error) -> Option<RowError>;

    /// A statement in the words of the database.
    fn statement(&self, query: Query) -> SqlStr;

    /// Kinds and keys as the values of a statement.
    fn keys(&self, keys: &[(Kind, Key)]) -> Result<Vec<Value>, sqlx::Error>;

    /// Sends one statement; gives its rows.
    async fn fetch(&self, sql: SqlStr, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error>;

    /// Sends a statement that all databases have; gives its rows.
    async fn ask(&self, query: Query, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        self.fetch(self.statement(query), values).await
    }

    /// The time by the table's clock.
    async fn now(&self) -> Result<Timestamp, sqlx::Error>;

    /// As [`Table::read`].
    async fn read(&self, ids: &[TaskId], keys: &[(Kind, Key)], columns: Columns) -> Answered<Found> {
        let RowsRead { now, found } = read_by(self, ids, keys, columns).await?;
        self.stamped((now, found)).await
    }

    /// What was found, and when: now, if no statement has said so.
    async fn stamped<T: Send>(&self, (now, found): (Option<Timestamp>, T)) -> Answered<T> {
        let now = match now {
            Some(now) => now,
            None => self.now().await?,
        };
        Ok(Stamped { now, found })
    }

    /// As [`Table::hold`].
    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Answered<Found> {
        self.read(ids, keys, Columns::All).await
    }

    /// As [`Table::hold_for_worker`].
    async fn hold_for_worker(&self, ids: &[TaskId]) -> Answered<Found> {
        self.read(ids, &[], Columns::Lean).await
    }

    /// How much a statement may carry of rows of so many bytes in all.
    async fn limits(&self, _bytes: usize) -> Result<Limits, sqlx::Error> {
        Ok(Limits {
            budget: usize::MAX,
            longest: usize::MAX,
            by: "",
        })
    }

    /// Why no new row of such a name can be kept.
    fn refuses(&self, _row: &NewRow) -> Option<RowError> {
        None
    }

    /// Writes new rows as they are at a time, or else now: those that are in the way of no other, or none of them.
    async fn insert(&self, rows: Vec<&NewRow>, now: Option<Timestamp>) -> Answered<Vec<Outcome>>;

    /// Rows that are written together, in the order in which they are to be written.
    fn groups<'w>(&self, writes: &'w [Write]) -> Result<Vec<Vec<&'w Write>>, sqlx::Error> {
        Ok(vec![writes.iter().collect()])
    }

    /// As [`Table::write`], of one of the [groups](Self::groups) or a part of it.
    async fn write(&self, writes: Vec<&Write>) -> Result<Vec<Outcome>, sqlx::Error>;

    /// As [`Table::range`].
    async fn ranges(&self, _ranges: &[Range], _columns: Columns) -> Answered<Vec<Found>> {
        Err(not_joined())
    }

    /// As [`Table::count`].
    async fn count(&self, _: &Kind, _: State, _: &[Duration], _most: usize) -> Answered<Vec<usize>> {
        Err(not_joined())
    }

    /// As [`Table::claim`].
    async fn claim(&self, _which: Which<'_>, _claim: &Claim) -> Answered<Found> {
        Err(not_joined())
    }

    /// As [`Table::set_aside`].
    async fn set_aside(&self, _rows: &[Unreadable], _pause: Duration) -> Result<(), sqlx::Error> {
        Err(not_joined())
    }

    /// As [`Table::remove`].
    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, sqlx::Error> {
        let past: Vec<_> = states.iter().map(|&state| Range::overdue(state, limit)).collect();
        let mut of_kinds = BTreeMap::<Kind, usize>::new();
        let mut ids = Vec::new();
        for found in self.ranges(&past, Columns::Lean).await?.found {
            for row in found.rows {
                let of_kind = of_kinds.entry(row.kind).or_default();
                *of_kind += 1;
                ids.extend((*of_kind <= limit).then(|| hex(row.id.as_bytes())));
            }
            // As many again at the most.
            ids.extend(found.unreadable.into_iter().map(|row| hex(&row.row)));
        }
        if ids.is_empty() {
            return Ok(0);
        }
        ids.sort_unstable();
        self.remove_past(states, ids).await
    }

    /// Removes those of these rows, given as the digits of their ids, that still are in one of these states and past, and that
    /// no other transaction has locked; says how many.
    async fn remove_past(&self, _states: &[State], _ids: Vec<String>) -> Result<u64, sqlx::Error> {
        Err(not_joined())
    }

    /// As [`Table::check`].
    async fn check(&self) -> Result<(), sqlx::Error> {
        Err(not_joined())
    }

    /// As [`Table::notified`].
    async fn notified(&self) {
        std::future::pending().await
    }
}

/// The rows of ids and keys, as the connection of a session has them.
pub(in crate::store) async fn read_by<S: Session + ?Sized>(
    session: &S,
    ids: &[TaskId],
    keys: &[(Kind, Key)],
    columns: Columns,
) -> Result<RowsRead, sqlx::Error> {
    let mut answer = RowsRead::default();
    if !ids.is_empty() {
        let ids = vec![Value::Ids(ids.to_vec())];
        let rows = session.ask(Query::ByIds(columns), ids).await?;
        answer.add(rows, &[]);
    }
    if !keys.is_empty() {
        let values = session.keys(keys)?;
        let rows = session.ask(Query::ByKeys(columns), values).await?;
        answer.add(rows, keys);
    }
    Ok(answer)
}

/// What a service's transaction is never asked for.
fn not_joined() -> sqlx::Error {
    sqlx::Error::Protocol("a transaction of a service's is not asked for that".to_owned())
}

/// How many bytes the texts of a write take in a statement.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn written_size(write: &Write) -> usize {
    let Write { row, noted, .. } = write;
    let error = row.last_error.as_deref().map_or(0, |error| clip(error).len());
    error + noted.history.len() + refilled_size(write)
}

fn refilled_size(Write { row, refill, .. }: &Write) -> usize {
    if *refill { row.payload.len() } else { 0 }
}

async fn insert_all<S: Session>(session: &S, rows: &[NewRow]) -> Answered<Vec<Outcome>> {
    let bytes = rows.iter().map(size).fold(0, usize::saturating_add);
    let limits = session.limits(bytes).await?;
    let refused = |row| session.refuses(row).or_else(|| limits.refuses(row));
    let refused = rows.iter().map(|row| Some(refused(row)?.outcome(S::NAME)));
    let mut came: Vec<_> = refused.collect();
    let mut places: Vec<_> = (0..rows.len()).filter(|&place| came[place].is_none()).collect();
    let ids: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
    // In the order of their keys two batches that meet wait for one another, in any other they would end in a
    // deadlock. Of twins the first counts, so those of an id have to stay in their order.
    if ids.len() == rows.len() {
        places.sort_by_key(|&place| (&rows[place].kind, &rows[place].key));
    }
    let first = OnceLock::new();
    let insert = |part: Vec<usize>| {
        let first = &first;
        async move {
            let part = part.into_iter().map(|place| &rows[place]).collect();
            // All are of one moment.
            let Stamped { now, found } = session.insert(part, first.get().copied()).await?;
            first.get_or_init(|| now);
            Ok(found)
        }
    };
    let parts = batches(&places, S::MOST, limits.budget, |&place| size(&rows[place]));
    let parts = parts.map(<[usize]>::to_vec);
    let written = by_parts(S::NAME, parts, |error| session.classify(error), insert).await?;
    for (&place, outcome) in places.iter().zip(written) {
        came[place] = Some(outcome);
    }
    let came = came.into_iter().map(|came| came.unwrap_or(Outcome::Lost));
    session.stamped((first.into_inner(), came.collect())).await
}

async fn write_all<S: Session>(session: &S, writes: &[Write]) -> Result<Vec<Outcome>, sqlx::Error> {
    let bytes = writes.iter().map(refilled_size).fold(0, usize::saturating_add);
    let limits = session.limits(bytes).await?;
    let mut came = BTreeMap::new();
    for group in session.groups(writes)? {
        let (mut ids, mut part) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        for write in group {
            match limits.refuses_bytes(refilled_size(write)) {
                Some(error) => drop(came.insert(write.row.id, error.outcome(S::NAME))),
                None => {
                    ids.push(write.row.id);
                    part.push(write);
                }
            }
        }
        let classify = |error: &_| session.classify(error);
        let write = |part| session.write(part);
        let outcomes = by_parts(S::NAME, std::iter::once(part), classify, write).await?;
        came.extend(ids.into_iter().zip(outcomes));
    }
    let outcome = |write: &Write| came.remove(&write.row.id).unwrap_or(Outcome::Lost);
    Ok(writes.iter().map(outcome).collect())
}

async fn kinds<S: Session>(
    session: &S,
    state: State,
    after: Option<&Kind>,
    limit: usize,
) -> Result<Vec<Kind>, sqlx::Error> {
    let mut after = Value::Text(after.map_or("", Kind::as_str).to_owned());
    let mut kinds = Vec::new();
    while kinds.len() < limit {
        let left = Value::count(limit - kinds.len());
        let values = vec![Value::Int(state_code::of(state).into()), after, left];
        let rows = session.ask(Query::Kinds, values).await?;
        let Some(last) = rows.last().and_then(|row| row.first()).cloned() else {
            break;
        };
        after = last;
        // A kind that is no text was written by hand.
        kinds.extend(rows.into_iter().filter_map(|row| kind(row.into_iter().next()?)));
    }
    Ok(kinds)
}

async fn history<S: Session>(session: &S, id: TaskId) -> Result<Noted, sqlx::Error> {
    let rows = session.ask(Query::History, vec![Value::Id(id)]).await?;
    let history = rows.into_iter().flatten().next().and_then(text);
    let history = history.unwrap_or_default();
    Ok(Noted { history })
}

/// Makes a table of what sessions do, whose errors are the store's.
macro_rules! table {
    ($(async fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty = $call:path;)*) => {
        #[async_trait]
        impl<S: Session> Table for SqlTable<S> {
            fn name(&self) -> &'static str {
                S::NAME
            }

            fn calls(&self) -> Option<usize> {
                Some(S::CALLS)
            }

            $(async fn $name(&self $(, $argument: $type)*) -> Result<$answer, Error> {
                $call(&self.0 $(, $argument)*).await.map_err(|error| self.0.failed(error))
            })*

            async fn notified(&self) {
                self.0.notified().await
            }
        }
    };
}

table! {
    async fn now(&self) -> Timestamp = S::now;
    async fn read(&self, ids: &[TaskId], keys: &[(Kind, Key)], columns: Columns) -> Stamped<Found> = S::read;
    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Stamped<Found> = S::hold;
    async fn hold_for_worker(&self, ids: &[TaskId]) -> Stamped<Found> = S::hold_for_worker;
    async fn range(&self, ranges: &[Range], columns: Columns) -> Stamped<Vec<Found>> = S::ranges;
    async fn count(&self, kind: &Kind, state: State, spans: &[Duration], most: usize) -> Stamped<Vec<usize>> = S::count;
    async fn insert(&self, rows: &[NewRow]) -> Stamped<Vec<Outcome>> = insert_all;
    async fn write(&self, writes: &[Write]) -> Vec<Outcome> = write_all;
    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Stamped<Found> = S::claim;
    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> () = S::set_aside;
    async fn remove(&self, states: &[State], limit: usize) -> u64 = S::remove;
    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Vec<Kind> = kinds;
    async fn history(&self, id: TaskId) -> Noted = history;
    async fn check(&self) -> () = S::check;
}
