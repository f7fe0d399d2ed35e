//! What the table writes, and what it leaves as it is.

use super::locks::lock;
use super::{Fixture, LEASE, change, id, in_time, is, new_row, run};
use crate::store::mysql::table::ServerTable;
use crate::store::sql::Each;
use crate::store::table::{Outcome, Table, Write};
use crate::store::{NewRow, Store, Verb};
use crate::{State, Task};

impl Fixture {
    /// What comes of these writes, which wait for nobody.
    async fn write(&self, writes: &[Write]) -> Vec<&'static str> {
        let table = ServerTable::new(&self.store.server, false);
        let came = in_time(table.write(writes)).await.unwrap();
        let came = came.iter().map(|came| match came {
            Outcome::Written => "written",
            Outcome::Lost => "lost",
            Outcome::Locked => "locked",
            Outcome::Refused(_) => "refused",
        });
        came.collect()
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
    let new = vec![new_row(1, LEASE), new_row(2, LEASE)];
    fixture.store.insert_all(new).await.unwrap();
    let rows = [fixture.find(1).await, fixture.find(2).await];
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
        assert_eq!(fixture.write(&[other]).await, ["lost"]);
        assert_eq!(fixture.find(1).await, rows[0]);
    }
    let missing = Task {
        id: id(3),
        ..rows[0].clone()
    };
    let writes = [&rows[0], &missing, &rows[1]].map(hopped);
    assert_eq!(fixture.write(&writes).await, ["written", "lost", "written"]);
    assert_eq!(fixture.write(&writes).await, ["lost"; 3]);
    assert_eq!(fixture.find(1).await, hopped(&rows[0]).row);
}

#[tokio::test]
async fn a_row_whose_wake_at_has_moved_is_not_written_where_that_matters() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(vec![new_row(1, LEASE)]).await.unwrap();
    let row = fixture.find(1).await;
    let moved = Write {
        before: Task {
            wake_at: row.wake_at.map(|wake_at| wake_at.shifted(1)),
            ..hopped(&row).before
        },
        guards_wake: true,
        ..hopped(&row)
    };
    assert_eq!(fixture.write(&[moved]).await, ["lost"]);
    let same = Write {
        guards_wake: true,
        ..hopped(&row)
    };
    assert_eq!(fixture.write(&[same]).await, ["written"]);
}

#[tokio::test]
async fn payload_and_headers_are_written_where_they_are_new_and_else_stay() {
    let fixture = Fixture::new().await;
    let new = NewRow {
        headers: [("a".to_owned(), "b".to_owned())].into(),
        max_attempts: Some(3),
        ..new_row(1, LEASE)
    };
    fixture.store.insert_all(vec![new]).await.unwrap();
    let row = fixture.find(1).await;
    let lean = Write {
        row: Task {
            payload: Vec::new(),
            headers: Default::default(),
            max_attempts: None,
            ..hopped(&row).row
        },
        ..hopped(&row)
    };
    assert_eq!(fixture.write(std::slice::from_ref(&lean)).await, ["written"]);
    let kept = fixture.find(1).await;
    assert_eq!(kept, hopped(&row).row);
    let refilled = Write {
        before: hopped(&kept).before,
        refill: true,
        row: Task {
            version: 9,
            ..lean.row
        },
        ..lean
    };
    assert_eq!(fixture.write(std::slice::from_ref(&refilled)).await, ["written"]);
    assert_eq!(fixture.find(1).await, refilled.row);
}

#[tokio::test]
async fn a_locked_row_is_not_waited_for_and_one_that_is_gone_is_not_locked() {
    let fixture = Fixture::new().await;
    let new = (1..=3).map(|number| new_row(number, LEASE)).collect();
    fixture.store.insert_all(new).await.unwrap();
    let mut writes = Vec::new();
    for number in 1..=3 {
        writes.push(hopped(&fixture.find(number).await));
    }
    let mut other = fixture.foreign().await;
    lock(&mut other, &format!("{} OR {}", is(1), is(2))).await;
    writes[1].before.version = 7;
    assert_eq!(fixture.write(&writes).await, ["locked", "lost", "written"]);
    run(&mut other, "COMMIT").await;
    assert_eq!(fixture.write(&writes).await, ["written", "lost", "lost"]);
}

#[tokio::test]
async fn a_second_live_row_of_a_key_is_not_written_and_holds_up_no_other() {
    let fixture = Fixture::new().await;
    let named = |number| NewRow {
        key: Some("a".into()),
        ..new_row(number, LEASE)
    };
    let store = &fixture.store;
    store.insert_all(vec![named(1), new_row(3, LEASE)]).await.unwrap();
    let cancel = vec![change(id(1), Verb::Cancel)];
    store.change_all(cancel).await.unwrap();
    store.insert_all(vec![named(2)]).await.unwrap();
    let (first, third) = (fixture.find(1).await, fixture.find(3).await);
    let back = Write {
        row: Task {
            state: State::Scheduled,
            ..hopped(&first).row
        },
        ..hopped(&first)
    };
    assert_eq!(fixture.write(&[back, hopped(&third)]).await, ["lost", "written"]);
    assert_eq!(fixture.find(1).await, first);
}

#[tokio::test]
async fn many_that_become_different_are_written_each_if_it_is_as_it_was() {
    let fixture = Fixture::new().await;
    let new = (0..20).map(|number| new_row(number, LEASE)).collect();
    fixture.store.insert_all(new).await.unwrap();
    let mut writes = Vec::new();
    for number in 0..20 {
        let mut write = hopped(&fixture.find(number).await);
        write.row.due_at = write.row.due_at.shifted(1 + i64::try_from(number).unwrap());
        if number % 2 == 0 {
            write.row.last_error = Some(format!("\u{1F600} {number}"));
            write.noted.history = format!("\n2 0 0 0 {number}");
        }
        // Its end has moved.
        write.guards_wake = number == 3;
        if number == 3 {
            write.before.wake_at = write.before.wake_at.map(|end| end.shifted(1));
        }
        writes.push(write);
    }
    writes[4].before.version = 7;
    let mut other = fixture.foreign().await;
    lock(&mut other, &is(5)).await;
    let came = fixture.write(&writes).await;
    for (number, (came, write)) in came.into_iter().zip(&writes).enumerate() {
        let expected = match number {
            3 | 4 => "lost",
            5 => "locked",
            _ => "written",
        };
        assert_eq!(came, expected, "{number}");
        if came == "written" {
            assert_eq!(fixture.find(number).await, write.row);
            let noted = fixture.store.history(id(number)).await.unwrap();
            assert_eq!(noted.history, write.noted.history);
        }
    }
}
