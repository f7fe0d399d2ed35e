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
            let mut left = places.to_vec();
            for pause in AGAIN.iter().map(Some).chain([None]) {
                let take = || async {
                    let steps = left.iter().map(|&place| &steps[place]);
                    let query = query(&database.statements.advance, steps, history);
                    fetch(&database.workers, query).await
                };
                let came = came(&database.retried(take).await?)?;
                for &place in &left {
                    advanced[place] = came.of(steps[place].id, steps[place].version);
                }
                left.retain(|&place| advanced[place] == Guarded::Blocked);
                if !wait(database, left.is_empty(), pause).await {
                    break;
                }
            }
        }
    }
    Ok(advanced)
}

/// For how long to wait before rows are asked for again that were locked, at the most.
///
/// They may be so for a moment, and for nobody's sake: a claim that meets a row which another has just claimed follows it to
/// its newest version, locks that, finds that it is none to claim, and has it locked until its statement ends. PostgreSQL
/// knows no way to let go of it before.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
    Duration::from_millis(32),
];

/// Waits up to so long, if anything is left to be asked for again; says whether it is to be.
async fn wait(database: &Database, is_done: bool, pause: Option<&Duration>) -> bool {
    let Some(pause) = pause.filter(|_| !is_done) else {
        return false;
    };
    let most = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    let millis = most / 2 + database.clock.random_below(most / 2 + 1);
    database.clock.sleep(Duration::from_millis(millis)).await;
    true
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
    let mut renewed = BTreeMap::new();
    for pause in AGAIN.iter().map(Some).chain([None]) {
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
        renewed.extend(
            asked
                .keys()
                .map(|&(id, version)| ((id, version), came.of(id, version))),
        );
        asked.retain(|claim, _| renewed.get(claim) == Some(&Guarded::Blocked));
        if !wait(database, asked.is_empty(), pause).await {
            break;
        }
    }
    let of = |claim: &Renewal| renewed.get(&(claim.id, claim.version)).copied();
    Ok(claims
        .iter()
        .map(|claim| of(claim).unwrap_or(Guarded::Lost))
        .collect())
}
