//! What the table writes, and what it leaves as it is.

use std::sync::Arc;

use super::{Fixture, LEASE, change, id, new_row};
use crate::store::sqlite::table::FileTable;
use crate::store::table::{Outcome, Table, Write};
use crate::store::{NewRow, Verb};
use crate::{State, Task};

impl Fixture {
    /// Writes these rows; says which were written.
    async fn write(&self, writes: Vec<Write>) -> Vec<bool> {
        let table = FileTable(Arc::clone(&self.store.file));
        let came = table.write(&writes).await.unwrap();
        assert!(
            !came
                .iter()
                .any(|came| matches!(came, Outcome::Locked | Outcome::Refused(_)))
        );
        came.iter().map(Outcome::is_written).collect()
    }
}

/// One hop more, if the row is as it was.
fn hopped(row: &Task) -> Write {
    Write {
        before: Task {
            payload: Vec::new(),
            headers: Default::default(),
            ..row.clone()
        },
        guards_wake: false,
        row: Task {
            version: row.version + 1,
            hop: row.hop + 1,
            ..row.clone()
        },
        refill: false,
        noted: Default::default(),
    }
}

#[tokio::test]
async fn a_row_of_another_version_is_not_written() {
    let fixture = Fixture::new().await;
    fixture.insert(vec![new_row(1, LEASE), new_row(2, LEASE)]).await;
    let rows = [fixture.find(id(1)).await, fixture.find(id(2)).await];
    for version in [0, 2, u64::MAX] {
        let other = Write {
            before: Task {
                version,
                ..hopped(&rows[0]).before
            },
            refill: true,
            row: Task {
                payload: vec![7],
                ..hopped(&rows[0]).row
            },
            ..hopped(&rows[0])
        };
        assert_eq!(fixture.write(vec![other]).await, [false]);
        assert_eq!(fixture.find(id(1)).await, rows[0]);
    }
    let missing = Task {
        id: id(3),
        ..rows[0].clone()
    };
    let writes = [&rows[0], &missing, &rows[1]].map(hopped).to_vec();
    assert_eq!(fixture.write(writes.clone()).await, [true, false, true]);
    assert_eq!(fixture.write(writes).await, [false; 3]);
    assert_eq!(fixture.find(id(1)).await, hopped(&rows[0]).row);
}

#[tokio::test]
async fn a_row_whose_wake_at_has_moved_is_not_written_where_that_matters() {
    let fixture = Fixture::new().await;
    fixture.insert(vec![new_row(1, LEASE)]).await;
    let row = fixture.find(id(1)).await;
    let moved = Write {
        before: Task {
            wake_at: row.wake_at.map(|wake_at| wake_at.shifted(1)),
            ..hopped(&row).before
        },
        guards_wake: true,
        ..hopped(&row)
    };
    assert_eq!(fixture.write(vec![moved]).await, [false]);
    let same = Write {
        guards_wake: true,
        ..hopped(&row)
    };
    assert_eq!(fixture.write(vec![same]).await, [true]);
}

#[tokio::test]
async fn a_second_live_row_of_a_key_is_not_written_and_holds_up_no_other() {
    let fixture = Fixture::new().await;
    let named = |number| NewRow {
        key: Some("a".into()),
        ..new_row(number, LEASE)
    };
    fixture.insert(vec![named(1), new_row(3, LEASE)]).await;
    fixture.change(vec![change(id(1), Verb::Cancel)]).await;
    fixture.insert(vec![named(2)]).await;
    let (first, third) = (fixture.find(id(1)).await, fixture.find(id(3)).await);
    let back = Write {
        row: Task {
            state: State::Scheduled,
            ..hopped(&first).row
        },
        ..hopped(&first)
    };
    assert_eq!(fixture.write(vec![back, hopped(&third)]).await, [false, true]);
    assert_eq!(fixture.find(id(1)).await, first);
}
