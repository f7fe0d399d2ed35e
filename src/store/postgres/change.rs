//! Changes of rows that are scheduled, in one statement: what nearly all are.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::codec;
use super::connections::{Database, Writing};
use crate::store::transition::Transition;
use crate::store::{Change, Expect, Target, When};
use crate::timestamp::millis;
use crate::{Answer, Task, Timestamp, defaults};

/// Makes those of these changes whose rows are scheduled and locked by nobody: of each row the first. Gives the time, and the
/// answers to these; neither where a row cannot be read, as then none is made.
///
/// The others are to be made after them. So all have to be [`of_scheduled`](crate::store::sql::of_scheduled), for which
/// their order does not matter.
pub(super) async fn change_scheduled(
    writing: &mut Writing<'_>,
    database: &Database,
    changes: &[Change],
    history: Duration,
) -> Result<(Option<Timestamp>, Vec<Option<Answer>>), sqlx::Error> {
    let mut columns = Columns::default();
    for change in changes {
        columns.push(change, history);
    }
    let rows = database
        .statements
        .query(&database.statements.change)
        .bind(columns.ids)
        .bind(columns.kinds)
        .bind(columns.keys)
        .bind(columns.versions)
        .bind(columns.expected)
        .bind(columns.states)
        .bind(columns.due_in)
        .bind(columns.due_at)
        .bind(columns.look_in)
        .bind(&database.channel)
        .bind(millis(defaults::LOOK_AHEAD))
        .bind(columns.notes)
        .bind(columns.sent)
        .fetch_all(&mut **writing)
        .await?;
    let mut answers = vec![None; changes.len()];
    let changed: Result<Vec<_>, _> = rows.iter().filter_map(|row| changed(row).transpose()).collect();
    let Ok(changed) = changed else {
        writing.begin_again().await?;
        return Ok((None, answers));
    };
    for (place, task) in changed {
        answers[place] = Some(Answer::Done(task));
    }
    let now = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok((now.map(Timestamp::from_millis), answers))
}

/// A changed row and its place in the batch, if there is one.
fn changed(row: &PgRow) -> Result<Option<(usize, Task)>, sqlx::Error> {
    let Some(place) = row.try_get::<Option<i64>, _>(2)? else {
        return Ok(None);
    };
    let place = usize::try_from(place - 1).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Some((place, codec::task(row, 3)?)))
}

/// Changes, column by column.
#[derive(Default)]
struct Columns {
    ids: Vec<Option<Uuid>>,
    kinds: Vec<Option<String>>,
    keys: Vec<Option<String>>,
    versions: Vec<Option<i64>>,
    expected: Vec<Option<i64>>,
    states: Vec<i16>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    look_in: Vec<Option<i64>>,
    notes: Vec<Option<String>>,
    sent: Vec<Option<String>>,
}

impl Columns {
    fn push(&mut self, change: &Change, history: Duration) {
        let (id, kind, key) = match &change.target {
            Target::Id(id) => (Some(codec::uuid(*id)), None, None),
            Target::Key(kind, key) => (None, codec::name(kind.as_str()), codec::name(key.as_str())),
        };
        let (version, expected) = match change.expect {
            Expect::Anything => (None, None),
            Expect::Version(version) => (Some(codec::stored_version(version)), None),
            Expect::Due(due_at) => (None, Some(due_at.as_millis())),
        };
        let made = Transition::by(&change.verb, history);
        let (due_in, due_at) = match made.due {
            None => (None, None),
            Some(When::After(delay)) => (Some(codec::span(delay)), None),
            Some(When::At(time)) => (None, Some(time.as_millis())),
        };
        self.ids.push(id);
        self.kinds.push(kind);
        self.keys.push(key);
        self.versions.push(version);
        self.expected.push(expected);
        self.states.push(codec::number(made.state));
        self.due_in.push(due_in);
        self.due_at.push(due_at);
        self.look_in.push(made.look_in.map(codec::span));
        self.notes.push(change.note.event.clone());
        self.sent.push(change.note.sent.clone());
    }
}
