//! What becomes of rows that a worker holds: hops, renewed leases, the ends of claims.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::codec;
use super::connections::Database;
use super::sql::Statements;
use crate::store::{Ending, Hop, Renewal, Settlement};
use crate::{State, TaskId};

pub(super) async fn hop(database: &Database, hops: &[Hop]) -> Result<Vec<bool>, sqlx::Error> {
    let mut recorded = vec![false; hops.len()];
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
            ids(&query.fetch_all(&database.pool).await?)
        };
        let taken = database.retried(record).await?;
        for place in round {
            recorded[place] = taken.contains(&hops[place].id);
        }
    }
    Ok(recorded)
}

/// The places of a batch in rounds, nearly always one: no round has an id twice, and those of an id keep their order.
/// Within a round they are in the order of their ids, so that two batches wait for one another and do not lock each
/// other out.
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

pub(super) async fn settle(
    database: &Database,
    settlements: &[Settlement],
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let settle = || async {
        let mut connection = database.pool.acquire().await?;
        end(&mut connection, &database.statements, settlements, history).await
    };
    database.retried(settle).await
}

/// Ends claims, by one statement.
pub(super) async fn end(
    connection: &mut PgConnection,
    statements: &Statements,
    settlements: &[Settlement],
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    // A claim can end once: of twins it is the first. In the order of ids, as in `rounds`.
    let mut first = BTreeMap::new();
    for (place, settlement) in settlements.iter().enumerate() {
        first.entry((settlement.id, settlement.version)).or_insert(place);
    }
    let mut columns = Columns::default();
    for &place in first.values() {
        columns.push(&settlements[place], history);
    }
    let query = sqlx::query(statements.settle.clone())
        .bind(columns.ids)
        .bind(columns.versions)
        .bind(columns.states)
        .bind(columns.due_in)
        .bind(columns.due_at)
        .bind(columns.wake_in)
        .bind(columns.anew)
        .bind(columns.give_back)
        .bind(columns.errors);
    let rows = query.fetch_all(connection).await?;
    let mut settled = vec![false; settlements.len()];
    for row in &rows {
        let ended = (codec::id(row, 0)?, codec::version(row, 1)?);
        if let Some(&place) = first.get(&ended) {
            settled[place] = true;
        }
    }
    Ok(settled)
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
        self.errors.push(end.error.map(codec::text));
    }
}

pub(super) async fn renew(
    database: &Database,
    claims: &[(TaskId, u64)],
    lease: Duration,
) -> Result<Vec<Renewal>, sqlx::Error> {
    let renew = || async {
        let versions = claims.iter().map(|&(_, version)| codec::stored_version(version));
        let query = sqlx::query(database.statements.renew.clone())
            .bind(codec::uuids(claims.iter().map(|&(id, _)| id)))
            .bind(versions.collect::<Vec<_>>())
            .bind(codec::span(lease));
        query.fetch_all(&database.pool).await
    };
    let mut renewed = BTreeSet::new();
    let mut held = BTreeSet::new();
    for row in database.retried(renew).await? {
        let claim = (codec::id(&row, 0)?, codec::version(&row, 1)?);
        held.insert(claim);
        if row.try_get(2)? {
            renewed.insert(claim);
        }
    }
    let come_of = |claim: &(TaskId, u64)| match () {
        () if renewed.contains(claim) => Renewal::Renewed,
        () if held.contains(claim) => Renewal::Locked,
        () => Renewal::Lost,
    };
    Ok(claims.iter().map(come_of).collect())
}

fn ids(rows: &[PgRow]) -> Result<BTreeSet<TaskId>, sqlx::Error> {
    rows.iter().map(|row| codec::id(row, 0)).collect()
}
