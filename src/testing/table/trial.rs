//! Helpers for the cases.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::table::{By, Columns, Found, Outcome, Range, Start, Table, Write};
use crate::store::{Claim, NewRow, Note, Noted, When};
use crate::{Kind, State, Task, TaskId, Timestamp};

/// A time that does not pass during a case.
pub(super) const LONG: Duration = Duration::from_secs(3_600);
/// The kind of rows whose kind does not matter.
pub(super) const KIND: &str = "order.cancel";
/// A moment long ago.
pub(super) const PAST: Timestamp = Timestamp::from_millis(1_000_000);

pub(super) fn id(n: u64) -> TaskId {
    TaskId::from_bytes(u128::from(n).to_be_bytes())
}

/// The nth row, due so many ms after [`PAST`], with a wake-up that is overdue only in a long time.
pub(super) fn row(n: u64, due: i64) -> NewRow {
    NewRow {
        id: id(n),
        kind: KIND.into(),
        key: None,
        payload: Vec::new(),
        headers: BTreeMap::new(),
        due: When::At(at(due)),
        overdue_after: LONG,
        max_attempts: None,
        replace: false,
        note: Note::default(),
    }
}

/// So many ms after [`PAST`].
pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(PAST.as_millis() + millis)
}

pub(super) fn named(key: &str, row: NewRow) -> NewRow {
    let key = Some(key.into());
    NewRow { key, ..row }
}

pub(super) fn of(kind: &str, row: NewRow) -> NewRow {
    let kind = kind.into();
    NewRow { kind, ..row }
}

pub(super) fn paid(payload: &[u8], row: NewRow) -> NewRow {
    let payload = payload.to_vec();
    NewRow { payload, ..row }
}

/// Inserts rows that conflict with no other, and returns when they were.
pub(super) async fn add(table: &dyn Table, rows: &[NewRow]) -> Timestamp {
    let inserted = table.insert(rows).await.expect("they are inserted");
    assert_eq!(inserted.found.len(), rows.len());
    assert!(
        inserted.found.iter().all(Outcome::is_written),
        "{:?}",
        inserted.found
    );
    inserted.now
}

/// Reads the whole row of an id.
pub(super) async fn get(table: &dyn Table, id: TaskId) -> Task {
    let read = table.read(&[id], &[], Columns::All).await.expect("it is read");
    let row = read.found.rows.into_iter().next();
    row.expect("the row is there")
}

/// The next version of a row, otherwise unchanged, if it has its version.
pub(super) fn next(row: &Task) -> Write {
    Write {
        before: row.clone(),
        guards_wake: false,
        row: Task {
            version: row.version + 1,
            ..row.clone()
        },
        refill: false,
        noted: Noted::default(),
    }
}

/// What becomes of a row that is to be in another state.
pub(super) fn into_state(row: &Task, state: State) -> Write {
    let mut write = next(row);
    write.row.state = state;
    write
}

pub(super) async fn write(table: &dyn Table, writes: &[Write]) -> Vec<&'static str> {
    let came = table.write(writes).await.expect("the call ends");
    came.iter().map(said).collect()
}

pub(super) fn said(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Written => "written",
        Outcome::Lost => "lost",
        Outcome::Locked => "locked",
        Outcome::Refused(_) => "refused",
    }
}

/// All rows of [`KIND`] that are scheduled, by their due times.
pub(super) fn scheduled() -> Range {
    Range {
        by: By::Due,
        state: State::Scheduled,
        kind: Some(Kind::from(KIND)),
        from: Start::First,
        within: None,
        backwards: false,
        limit: 100,
        bytes: usize::MAX,
    }
}

pub(super) async fn range(table: &dyn Table, range: Range) -> Vec<TaskId> {
    let read = table.range(&[range], Columns::All).await.expect("it is read");
    let [found] = read.found.try_into().expect("an answer for each range");
    ids(&found)
}

pub(super) fn ids(found: &Found) -> Vec<TaskId> {
    assert_eq!(found.unreadable, []);
    found.rows.iter().map(|row| row.id).collect()
}

pub(super) fn numbers<const N: usize>(numbers: [u64; N]) -> Vec<TaskId> {
    numbers.map(id).to_vec()
}

/// A claim for long, with room for so many of [`KIND`].
pub(super) fn claim(room: usize) -> Claim {
    Claim {
        owner: "tester".into(),
        lease: LONG,
        room: [(KIND.into(), room)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}
