//! Cases of rows that are kept as they were given.

use super::TableFixture;
use super::trial::{KIND, add, get, id, into_state, named, next, numbers, of, paid, row, said, write};
use crate::State;
use crate::store::table::{Columns, Which};
use crate::store::{NewRow, Note, Noted};

pub(super) async fn a_new_row_is_read_by_its_id_and_by_its_key(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let new = NewRow {
        headers: [("traceparent".to_owned(), "00-é".to_owned())].into(),
        max_attempts: Some(3),
        ..named("order-42 é", paid(b"\0\xFFx", row(1, 5)))
    };
    let now = add(&*table, &[new.clone(), row(2, 6)]).await;
    let (expected, _) = new.row(now);
    assert_eq!(get(&*table, id(1)).await, expected);
    let by_key = table
        .read(&[], &[(KIND.into(), "order-42 é".into())], Columns::All)
        .await;
    assert_eq!(by_key.unwrap().found.rows, [expected]);
}

pub(super) async fn a_lean_row_has_no_payload_and_no_headers(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let headers = [("a".to_owned(), "b".to_owned())].into();
    let now = add(
        &*table,
        &[NewRow {
            headers,
            ..paid(b"x", row(1, 5))
        }],
    )
    .await;
    let read = table.read(&[id(1)], &[], Columns::Lean).await.unwrap();
    assert_eq!(read.found.rows, [row(1, 5).row(now).0]);
}

pub(super) async fn what_is_absent_is_left_out(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5)]).await;
    let keys = [(KIND.into(), "none".into())];
    let read = table
        .read(&[id(7), id(1), id(8)], &keys, Columns::Lean)
        .await
        .unwrap();
    let mut found: Vec<_> = read.found.rows.iter().map(|row| row.id).collect();
    found.dedup();
    assert_eq!(found, numbers([1]));
    assert_eq!(table.history(id(7)).await.unwrap(), Noted::default());
}

pub(super) async fn a_key_means_its_live_row_else_the_newest(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let keys = [(KIND.into(), "k".into())];
    for n in 1..=3 {
        add(
            &*table,
            &[named("k", row(n, 5)), of("other", named("k", row(10 + n, 5)))],
        )
        .await;
        let read = table.read(&[], &keys, Columns::Lean).await.unwrap();
        assert_eq!(read.found.rows[0].id, id(n), "the live one");
        let (ended, other) = (get(&*table, id(n)).await, get(&*table, id(10 + n)).await);
        let ends = [into_state(&ended, State::Done), into_state(&other, State::Done)];
        assert_eq!(write(&*table, &ends).await, ["written"; 2]);
        let read = table.read(&[], &keys, Columns::Lean).await.unwrap();
        assert_eq!(read.found.rows[0].id, id(n), "the newest");
        // Of two that were written in the same millisecond the one with the greater id is newer.
    }
}

pub(super) async fn a_new_row_that_meets_another_is_lost(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[named("k", row(1, 5))]).await;
    let met = [
        paid(b"other", row(1, 6)),
        named("k", row(2, 6)),
        row(3, 6),
        row(3, 7),
        named("twins", row(4, 6)),
        named("twins", row(5, 6)),
    ];
    let came = table.insert(&met).await.unwrap().found;
    let came: Vec<_> = came.iter().map(said).collect();
    let may = ["lost", "lost", "written", "lost", "written", "lost"];
    let is_allowed = |(came, may): (&&str, &&str)| came == may || *came == "lost";
    assert!(came.iter().zip(&may).all(is_allowed), "{came:?}");
    // Those that only other rows of the call were in the way of.
    let left = [2, 4].into_iter().filter(|&place| came[place] == "lost");
    let left: Vec<_> = left.map(|place| met[place].clone()).collect();
    add(&*table, &left).await;
    let read = table
        .read(&[id(1), id(2), id(3), id(4), id(5)], &[], Columns::All)
        .await;
    let mut rows = read.unwrap().found.rows;
    rows.sort_by_key(|row| row.id);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.id, row.due_at.as_millis() % 10))
        .collect();
    assert_eq!(found, [(id(1), 5), (id(3), 6), (id(4), 6)]);
    assert_eq!(rows[0].payload, b"", "what was there stays as it was");
}

pub(super) async fn all_new_rows_of_a_call_are_of_one_moment(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows: Vec<_> = (1..=600).map(|n| row(n, 5)).collect();
    let now = add(&*table, &rows).await;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let read = table.read(&ids, &[], Columns::Lean).await.unwrap();
    assert_eq!(read.found.rows.len(), 600);
    assert!(read.found.rows.iter().all(|row| row.created_at == now));
}

pub(super) async fn what_is_noted_is_added_to_what_was(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let note = Note {
        event: Some("scheduled".to_owned()),
    };
    let new = NewRow { note, ..row(1, 5) };
    let now = add(&*table, std::slice::from_ref(&new)).await;
    let (made, mut noted) = new.row(now);
    assert_eq!(table.history(id(1)).await.unwrap(), noted);
    let mut moved = next(&made);
    moved.noted.add(
        &Note {
            event: Some("moved".to_owned()),
        },
        &moved.row,
        now,
        Some(made.due_at),
    );
    assert_eq!(write(&*table, &[moved.clone()]).await, ["written"]);
    noted.append(&moved.noted);
    assert_eq!(table.history(id(1)).await.unwrap(), noted);
}

pub(super) async fn the_time_of_an_answer_is_the_tables(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let before = table.now().await.unwrap();
    let inserted = add(&*table, &[row(1, 5)]).await;
    let read = table.read(&[id(1)], &[], Columns::Lean).await.unwrap().now;
    let claimed = table
        .claim(Which::Due, &super::trial::claim(0))
        .await
        .unwrap()
        .now;
    let after = table.now().await.unwrap();
    assert!([before, inserted, read, claimed, after].is_sorted());
}

pub(super) async fn an_empty_call_does_nothing(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    assert_eq!(table.insert(&[]).await.unwrap().found.len(), 0);
    assert_eq!(write(&*table, &[]).await, [""; 0]);
    assert_eq!(table.read(&[], &[], Columns::All).await.unwrap().found.rows, []);
    assert_eq!(table.range(&[], Columns::All).await.unwrap().found, []);
    assert_eq!(
        table
            .claim(Which::These(&[]), &super::trial::claim(9))
            .await
            .unwrap()
            .found
            .rows,
        []
    );
    assert_eq!(table.remove(&[], 9).await.unwrap(), 0);
}
