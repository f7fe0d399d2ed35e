//! Writes that are guarded by the version of a row: steps, and renewed leases.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{Row, SqlStr};
use uuid::Uuid;

use super::codec;
use super::connections::{Database, fetch};
use super::read::Query;
use crate::TaskId;
use crate::store::sql::{STATEMENT, batches, clip, rounds};
use crate::store::transition::Transition;
use crate::store::{Guarded, Renewal, Step, When};

pub(super) async fn advance(
    database: &Database,
    steps: &[Step],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut advanced = vec![Guarded::Lost; steps.len()];
    for round in rounds(steps.iter().map(|step| step.id)) {
        let error = |place: &usize| Transition::of(&steps[*place].event, history).error;
        let size = |place: &usize| error(place).map_or(0, |error| clip(error).len());
        for places in batches(&round, usize::MAX, STATEMENT, size) {
            let take = || async {
                let steps = places.iter().map(|&place| &steps[place]);
                let query = query(&database.statements.advance, steps, history);
                fetch(&database.workers, query).await
            };
            let came = came(&database.retried(take).await?)?;
            for &place in places {
                advanced[place] = came.of(steps[place].id, steps[place].version);
            }
        }
    }
    Ok(advanced)
}

/// What came of guarded writes, by id and version.
pub(super) struct Came(BTreeMap<(TaskId, u64), bool>);

impl Came {
    pub(super) fn of(&self, id: TaskId, version: u64) -> Guarded {
        match self.0.get(&(id, version)) {
            Some(true) => Guarded::Done,
            Some(false) => Guarded::Blocked,
            None => Guarded::Lost,
        }
    }
}

pub(super) fn came(rows: &[PgRow]) -> Result<Came, sqlx::Error> {
    let mut came = BTreeMap::new();
    for row in rows {
        let is_done = came
            .entry((codec::id(row, 0)?, codec::version(row, 1)?))
            .or_insert(false);
        *is_done |= row.try_get::<bool, _>(2)?;
    }
    Ok(Came(came))
}

/// Takes steps, no two of one row.
pub(super) fn query<'s>(
    statement: &SqlStr,
    steps: impl Iterator<Item = &'s Step>,
    history: Duration,
) -> Query<'static> {
    let mut columns = Columns::default();
    for step in steps {
        columns.push(step, history);
    }
    sqlx::query(statement.clone())
        .bind(columns.ids)
        .bind(columns.versions)
        .bind(columns.states)
        .bind(columns.due_in)
        .bind(columns.due_at)
        .bind(columns.look_in)
        .bind(columns.anew)
        .bind(columns.hop)
        .bind(columns.given_back)
        .bind(columns.errors)
        .bind(columns.notes)
        .bind(columns.sent)
}

/// Steps, column by column.
#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    versions: Vec<i64>,
    states: Vec<i16>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    look_in: Vec<Option<i64>>,
    anew: Vec<bool>,
    hop: Vec<bool>,
    given_back: Vec<i16>,
    errors: Vec<Option<String>>,
    notes: Vec<Option<String>>,
    sent: Vec<Option<String>>,
}

impl Columns {
    fn push(&mut self, step: &Step, history: Duration) {
        let made = Transition::of(&step.event, history);
        let (due_in, due_at) = match made.due {
            None => (None, None),
            Some(When::After(delay)) => (Some(codec::span(delay)), None),
            Some(When::At(time)) => (None, Some(time.as_millis())),
        };
        self.ids.push(codec::uuid(step.id));
        self.versions.push(codec::stored_version(step.version));
        self.states.push(codec::number(made.state));
        self.due_in.push(due_in);
        self.due_at.push(due_at);
        self.look_in.push(made.look_in.map(codec::span));
        self.anew.push(made.anew);
        self.hop.push(made.hop);
        self.given_back.push(i16::from(made.given_back));
        self.errors.push(made.error.map(|error| codec::text(clip(error))));
        self.notes.push(step.note.event.clone());
        self.sent.push(step.note.sent.clone());
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
