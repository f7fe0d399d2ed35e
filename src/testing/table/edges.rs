//! Cases of rows at the very millisecond at which they become due: none is found, counted or claimed before it, or left out at it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::TableFixture;
use super::trial::{KIND, add, claim, ids, next, row, scheduled, write};
use crate::store::table::{By, Columns, Range, Start, Table, Which};
use crate::store::{NewRow, When};
use crate::{State, Task, TaskId, Timestamp};

/// How many rows there are, a millisecond apart.
const ROWS: usize = 1_000;
/// How many calls each case makes: in the same millisecond as the readings of the clock around them, which tell what is off by
/// one, are only quick ones.
const CALLS: usize = 20;

/// Writes rows of which one is due, and to be woken, in each of the milliseconds around now.
async fn add_each_millisecond(table: &dyn Table) -> Vec<Task> {
    let first = table.now().await.expect("it is read").shifted(-300);
    let rows: Vec<_> = (0..ROWS as u64)
        .map(|n| NewRow {
            due: When::At(first.after(Duration::from_millis(n))),
            ..row(n + 1, 0)
        })
        .collect();
    let now = add(table, &rows).await;
    let writes: Vec<_> = rows
        .iter()
        .map(|new| {
            let mut woken = next(&new.row(now).0);
            woken.row.wake_at = Some(woken.row.due_at);
            woken
        })
        .collect();
    assert!(write(table, &writes).await.iter().all(|said| *said == "written"));
    writes.into_iter().map(|write| write.row).collect()
}

/// What the clock showed before a call and after it: the call has read it in between, once or more.
struct Readings {
    before: Timestamp,
    after: Timestamp,
}

impl Readings {
    /// Makes a call between two readings.
    async fn around<T>(table: &dyn Table, call: impl Future<Output = T>) -> (T, Self) {
        let before = table.now().await.expect("it is read");
        let came = call.await;
        let after = table.now().await.expect("it is read");
        (came, Self { before, after })
    }

    /// The ids of the rows that the call has to find, and of those that it may, where it looks for those between so many ms
    /// after now and so many.
    fn expected(&self, rows: &[Task], from: i64, until: i64) -> [BTreeSet<TaskId>; 2] {
        let between = |from: Timestamp, until: Timestamp| {
            let within = rows
                .iter()
                .filter(|row| from <= row.due_at && row.due_at <= until);
            within.map(|row| row.id).collect()
        };
        let Self { before, after } = self;
        [
            between(after.shifted(from), before.shifted(until)),
            between(before.shifted(from), after.shifted(until)),
        ]
    }
}

fn assert_found(found: &BTreeSet<TaskId>, [must, may]: &[BTreeSet<TaskId>; 2]) {
    let missing: Vec<_> = must.difference(found).collect();
    let wrong: Vec<_> = found.difference(may).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "missing: {missing:?}, too many: {wrong:?}"
    );
}

pub(super) async fn a_range_has_the_milliseconds_at_which_it_begins_and_ends(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows = add_each_millisecond(&*table).await;
    let by = |by| Range {
        by,
        from: Start::Ago(Duration::from_millis(50)),
        within: Some(Duration::from_millis(50)),
        limit: ROWS,
        ..scheduled()
    };
    for _ in 0..CALLS {
        for range in [by(By::Due), by(By::Wake)] {
            let call = table.range(std::slice::from_ref(&range), Columns::Lean);
            let (read, readings) = Readings::around(&*table, call).await;
            let found = ids(&read.unwrap().found[0]).into_iter().collect();
            assert_found(&found, &readings.expected(&rows, -50, 50));
        }
    }
}

pub(super) async fn a_row_is_counted_from_its_millisecond_on(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows = add_each_millisecond(&*table).await;
    let (kind, spans) = (KIND.into(), [0, 50].map(Duration::from_millis));
    for _ in 0..CALLS {
        let call = table.count(&kind, State::Scheduled, &spans, ROWS);
        let (counted, readings) = Readings::around(&*table, call).await;
        for (counted, span) in counted.unwrap().found.into_iter().zip([0, 50]) {
            let [must, may] = readings.expected(&rows, -3_600_000, span).map(|ids| ids.len());
            assert!((must..=may).contains(&counted), "{counted}, not {must} to {may}");
        }
    }
}

pub(super) async fn a_row_is_claimed_from_its_millisecond_on(fixture: &dyn TableFixture) {
    for by_id in [false, true] {
        let table = fixture.table().await;
        let mut rows = add_each_millisecond(&*table).await;
        for _ in 0..CALLS {
            let these: Vec<_> = rows.iter().map(|row| (row.id, row.version)).collect();
            let which = if by_id { Which::These(&these) } else { Which::Due };
            let claim = claim(ROWS);
            let (claimed, readings) = Readings::around(&*table, table.claim(which, &claim)).await;
            let found = claimed.unwrap().found;
            let early = found.rows.iter().find(|row| row.due_at > row.updated_at);
            assert_eq!(early, None, "each by the time of its own claim");
            let claimed = ids(&found).into_iter().collect();
            assert_found(&claimed, &readings.expected(&rows, -3_600_000, 0));
            rows.retain(|row| !claimed.contains(&row.id));
        }
    }
}
