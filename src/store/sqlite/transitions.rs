//! Transitions of rows that are not read before: a statement looks at what it must know of each, and writes the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::{codec, sql};
use crate::store::transition::Transition;
use crate::store::{Change, Expect, Note, Step, Target, row};
use crate::{Answer, Key, Kind, State, TaskId, Timestamp};

/// A transition, and what its row has to be like.
struct Given<'a> {
    id: Option<TaskId>,
    key: Option<(&'a Kind, &'a Key)>,
    version: Option<u64>,
    is_due: Option<Timestamp>,
    was: State,
    made: Transition<'a>,
    note: &'a Note,
}

impl<'a> Given<'a> {
    fn of_step(step: &'a Step, history: Duration) -> Self {
        Self {
            id: Some(step.id),
            key: None,
            version: Some(step.version),
            is_due: None,
            was: step.event.needs(),
            made: Transition::of(&step.event, history),
            note: &step.note,
        }
    }

    fn of_change(change: &'a Change, history: Duration) -> Self {
        let (id, key) = match &change.target {
            Target::Id(id) => (Some(*id), None),
            Target::Key(kind, key) => (None, Some((kind, key))),
        };
        let (version, is_due) = match change.expect {
            Expect::Anything => (None, None),
            Expect::Version(version) => (Some(version), None),
            Expect::Due(due_at) => (None, Some(due_at)),
        };
        Self {
            id,
            key,
            version,
            is_due,
            was: State::Scheduled,
            made: Transition::by(&change.verb, history),
            note: &change.note,
        }
    }
}

/// Makes transitions by the statements for so many rows, first or later ones; gives what they say of those that they made.
async fn make(
    connection: &mut SqliteConnection,
    statement: impl Fn(bool, usize) -> String,
    given: &[Given<'_>],
    now: Timestamp,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let mut made = Vec::with_capacity(given.len());
    for (at, part) in given.chunks(sql::MOST).enumerate() {
        let mut query = sqlx::query(AssertSqlSafe(statement(at == 0, part.len())));
        for row in part {
            // No row has a version that is no number of SQLite's.
            let version = row.version.map(|version| i64::try_from(version).unwrap_or(-1));
            let Transition {
                state,
                due,
                look_in,
                anew,
                hop,
                given_back,
                error,
            } = row.made;
            query = query
                .bind(row.id.map(|id| id.as_bytes().to_vec()))
                .bind(row.key.map(|(kind, _)| kind.as_str()))
                .bind(row.key.map(|(_, key)| key.as_str()))
                .bind(version)
                .bind(row.is_due.map(Timestamp::as_millis))
                .bind(codec::number(row.was))
                .bind(codec::number(state))
                .bind(due.map(|due| row::due_at(due, now).as_millis()))
                .bind(look_in.map(|look_in| now.after(look_in).as_millis()))
                .bind(anew)
                .bind(hop)
                .bind(i64::from(given_back))
                .bind(error)
                .bind(now.as_millis())
                .bind(row.note.event.as_deref())
                .bind(row.note.sent.as_deref());
        }
        made.extend(query.fetch_all(&mut *connection).await?);
    }
    Ok(made)
}

/// Takes those of these steps, each of another row, whose rows are as they say; gives the ids of these.
pub(super) async fn advance(
    connection: &mut SqliteConnection,
    steps: impl Iterator<Item = &Step>,
    now: Timestamp,
    history: Duration,
) -> Result<BTreeSet<TaskId>, sqlx::Error> {
    let given: Vec<_> = steps.map(|step| Given::of_step(step, history)).collect();
    let taken = make(connection, |_, rows| sql::advance(rows), &given, now).await?;
    taken.iter().map(|row| codec::id(row, 0)).collect()
}

/// Makes those of these changes whose rows are scheduled, of each target the first; gives the answers to these. None is
/// made where one of these rows cannot be read, or is meant by its id and by its key.
///
/// The others are to be made after them. So all have to be [`of_scheduled`](crate::store::sql::of_scheduled), for which
/// their order does not matter.
pub(super) async fn change_scheduled(
    connection: &mut SqliteConnection,
    changes: &[Change],
    now: Timestamp,
    history: Duration,
) -> Result<Vec<Option<Answer>>, sqlx::Error> {
    let (mut ids, mut keys) = (BTreeMap::new(), BTreeMap::new());
    let mut given = Vec::with_capacity(changes.len());
    for (place, change) in changes.iter().enumerate() {
        let is_first = match &change.target {
            Target::Id(id) => *ids.entry(*id).or_insert(place) == place,
            Target::Key(kind, key) => *keys.entry((kind, key)).or_insert(place) == place,
        };
        if is_first {
            given.push(Given::of_change(change, history));
        }
    }
    let mut answers = vec![None; changes.len()];
    // With the first all are undone.
    let statement = |is_first, rows| match is_first {
        true => sql::undoable(&sql::change(rows)),
        false => sql::change(rows),
    };
    for row in make(connection, statement, &given, now).await? {
        let task = codec::task(&row).ok();
        let place = task.as_ref().and_then(|task| {
            let by_key = task.key.as_ref().and_then(|key| keys.get(&(&task.kind, key)));
            match (ids.get(&task.id), by_key) {
                (Some(place), None) | (None, Some(place)) => Some(*place),
                _ => None,
            }
        });
        let (Some(task), Some(place)) = (task, place) else {
            sqlx::query(sql::UNDO).execute(connection).await?;
            return Ok(vec![None; changes.len()]);
        };
        answers[place] = Some(Answer::Done(task));
    }
    Ok(answers)
}
