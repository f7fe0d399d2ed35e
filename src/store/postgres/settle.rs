//! What becomes of rows that a worker holds: hops, renewed leases, the ends of claims.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row, SqlStr};
use uuid::Uuid;

use super::codec;
use super::connections::{Database, fetch};
use crate::store::sql::{STATEMENT, batches, clip};
use crate::store::{Ending, Guarded, Hop, Renewal, Settlement};
use crate::{State, TaskId};

pub(super) async fn hop(database: &Database, hops: &[Hop]) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut recorded = vec![Guarded::Lost; hops.len()];
    for round in rounds(hops.iter().map(|hop| hop.id)) {
        let record = || async {
            let of = |place: &usize| &hops[*place];
            let query = sqlx::query(database.statements.hop.clone())
                .bind(codec::uuids(round.iter().map(|place| of(place).id)))
                .bind(Vec::from_iter(
                    round.iter().map(|place| codec::stored_version(of(place).version)),
                ))
                .bind(Vec::from_iter(
                    round.iter().map(|place| codec::span(of(place).look_in)),
                ));
            fetch(&database.workers, query).await
        };
        let came = came(&database.retried(record).await?)?;
        for place in round {
            recorded[place] = came.of(hops[place].id, hops[place].version);
        }
    }
    Ok(recorded)
}

/// The places of a batch in rounds, nearly always one: no round has an id twice, and those of an id keep their order.
/// Within a round they are in the order of their ids, so that two batches do not lock each other out.
fn rounds(ids: impl Iterator<Item = TaskId>) -> Vec<Vec<usize>> {
    let mut rounds: Vec<BTreeMap<TaskId, usize>> = Vec::new();
    for (place, id) in ids.enumerate() {
        match rounds.iter_mut().find(|round| !round.contains_key(&id)) {
            Some(round) => {
                round.insert(id, place);
            }
            None => rounds.push([(id, place)].into()),
        }
    }
    rounds
        .into_iter()
        .map(|round| round.into_values().collect())
        .collect()
}

/// What came of guarded writes, by id and version.
struct Came(BTreeMap<(TaskId, u64), bool>);

impl Came {
    fn of(&self, id: TaskId, version: u64) -> Guarded {
        match self.0.get(&(id, version)) {
            Some(true) => Guarded::Done,
            Some(false) => Guarded::Blocked,
            None => Guarded::Lost,
        }
    }
}

fn came(rows: &[PgRow]) -> Result<Came, sqlx::Error> {
    let mut came = BTreeMap::new();
    for row in rows {
        let is_done = came
            .entry((codec::id(row, 0)?, codec::version(row, 1)?))
            .or_insert(false);
        *is_done |= row.try_get::<bool, _>(2)?;
    }
    Ok(Came(came))
}

pub(super) async fn settle(
    database: &Database,
    settlements: &[Settlement],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut settled = Vec::with_capacity(settlements.len());
    for settlements in within_budget(settlements) {
        let settle = || async {
            let mut lent = database.workers.lend().await?;
            let statement = &database.statements.settle;
            let settled = end(&mut lent, statement, settlements, history).await?;
            lent.give_back();
            Ok(settled)
        };
        settled.extend(database.retried(settle).await?);
    }
    Ok(settled)
}

/// Batches, each of which has so few bytes of errors that one statement can carry them.
fn within_budget(settlements: &[Settlement]) -> impl Iterator<Item = &[Settlement]> {
    let size = |settlement: &Settlement| match &settlement.ending {
        Ending::Dead { error, .. } | Ending::Retry { error, .. } => clip(error).len(),
        _ => 0,
    };
    batches(settlements, usize::MAX, STATEMENT, size)
}

/// Ends claims, by one statement.
pub(super) async fn end(
    connection: &mut PgConnection,
    statement: &SqlStr,
    settlements: &[Settlement],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    // A claim can end once: of twins it is the first. In the order of ids, as in `rounds`.
    let mut first = BTreeMap::new();
    for (place, settlement) in settlements.iter().enumerate() {
        first.entry((settlement.id, settlement.version)).or_insert(place);
    }
    let mut columns = Columns::default();
    for &place in first.values() {
        columns.push(&settlements[place], history);
    }
    let query = sqlx::query(statement.clone())
        .bind(columns.ids)
        .bind(columns.versions)
        .bind(columns.states)
        .bind(columns.due_in)
        .bind(columns.due_at)
        .bind(columns.wake_in)
        .bind(columns.anew)
        .bind(columns.give_back)
        .bind(columns.errors);
    let came = came(&query.fetch_all(connection).await?)?;
    let of = |(place, settlement): (usize, &Settlement)| {
        let came = came.of(settlement.id, settlement.version);
        match first.get(&(settlement.id, settlement.version)) {
            Some(&first) if first < place && came == Guarded::Done => Guarded::Lost,
            _ => came,
        }
    };
    Ok(settlements.iter().enumerate().map(of).collect())
}

/// Ends of claims, column by column: what [`row::end`](crate::store::row::end) makes of a row, for the statement.
#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    versions: Vec<i64>,
    states: Vec<i16>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    wake_in: Vec<Option<i64>>,
    anew: Vec<bool>,
    give_back: Vec<bool>,
    errors: Vec<Option<String>>,
}

/// What becomes of one row, apart from its version.
struct End<'e> {
    state: State,
    /// Due as before unless one of these is there.
    due_in: Option<Duration>,
    due_at: Option<i64>,
    /// When to look next; never, for a dead row.
    wake_in: Option<Duration>,
    /// As if it had just been scheduled.
    anew: bool,
    give_back: bool,
    error: Option<&'e str>,
}

impl<'e> End<'e> {
    fn of(ending: &'e Ending, history: Duration) -> Self {
        let end = |state, wake_in| Self {
            state,
            due_in: None,
            due_at: None,
            wake_in,
            anew: false,
            give_back: false,
            error: None,
        };
        let later = |after, look_in| Self {
            due_in: Some(after),
            ..end(State::Scheduled, Some(look_in))
        };
        match *ending {
            Ending::Done => end(State::Done, Some(history)),
            Ending::Dead { ref error, give_back } => Self {
                give_back,
                error: Some(error),
                ..end(State::Dead, None)
            },
            Ending::Retry {
                after,
                look_in,
                ref error,
            } => Self {
                error: Some(error),
                ..later(after, look_in)
            },
            Ending::Snooze { after, look_in } => Self {
                give_back: true,
                ..later(after, look_in)
            },
            Ending::Again { after, look_in } => Self {
                anew: true,
                ..later(after, look_in)
            },
            Ending::Release => Self {
                give_back: true,
                ..end(State::Scheduled, Some(Duration::ZERO))
            },
            Ending::Moved { due, look_in } => Self {
                due_at: Some(due.as_millis()),
                anew: true,
                ..end(State::Scheduled, Some(look_in))
            },
            Ending::Cancelled => Self {
                give_back: true,
                ..end(State::Cancelled, Some(history))
            },
        }
    }
}

impl Columns {
    fn push(&mut self, settlement: &Settlement, history: Duration) {
        let end = End::of(&settlement.ending, history);
        self.ids.push(codec::uuid(settlement.id));
        self.versions.push(codec::stored_version(settlement.version));
        self.states.push(codec::number(end.state));
        self.due_in.push(end.due_in.map(codec::span));
        self.due_at.push(end.due_at);
        self.wake_in.push(end.wake_in.map(codec::span));
        self.anew.push(end.anew);
        self.give_back.push(end.give_back);
        self.errors.push(end.error.map(|error| codec::text(clip(error))));
    }
}

pub(super) async fn renew(
    database: &Database,
    claims: &[Renewal],
    lease: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    // In the order of ids, as in `rounds`.
    let mut asked = BTreeMap::new();
    for claim in claims {
        *asked.entry((claim.id, claim.version)).or_insert(false) |= claim.started;
    }
    let renew = || async {
        let versions = asked.keys().map(|&(_, version)| codec::stored_version(version));
        let query = sqlx::query(database.statements.renew.clone())
            .bind(codec::uuids(asked.keys().map(|&(id, _)| id)))
            .bind(versions.collect::<Vec<_>>())
            .bind(codec::span(lease))
            .bind(asked.values().copied().collect::<Vec<_>>());
        fetch(&database.workers, query).await
    };
    let came = came(&database.retried(renew).await?)?;
    let of = |claim: &Renewal| came.of(claim.id, claim.version);
    Ok(claims.iter().map(of).collect())
}
