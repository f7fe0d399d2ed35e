//! Cases of rows in the order of their times.

use std::time::Duration;

use super::TableFixture;
use super::trial::{
    KIND, LONG, PAST, add, at, get, id, ids, into_state, numbers, of, paid, range, row, scheduled, write,
};
use crate::store::table::{By, Columns, Range, Start};
use crate::store::{NewRow, When};
use crate::{State, Timestamp};

/// Seven rows, due at 1 to 4, two at a time, and one that is due in a long time.
fn seven() -> Vec<NewRow> {
    let due = |(n, due)| row(n, due);
    let mut rows: Vec<_> = [(6, 1), (2, 2), (5, 2), (1, 3), (4, 3), (3, 4)].map(due).into();
    rows.push(NewRow {
        due: When::After(LONG),
        ..row(7, 0)
    });
    rows
}

pub(super) async fn due_rows_come_in_the_order_of_their_times_and_ids(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &seven()).await;
    assert_eq!(range(&*table, scheduled()).await, numbers([6, 2, 5, 1, 4, 3, 7]));
}

pub(super) async fn a_range_goes_on_after_its_last_row(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &seven()).await;
    for (after, found) in [
        (Start::After(at(2), id(2)), numbers([5, 1, 4, 3, 7])),
        (Start::After(at(2), id(5)), numbers([1, 4, 3, 7])),
        // After a row that is gone.
        (Start::After(at(2), id(3)), numbers([5, 1, 4, 3, 7])),
        (Start::After(Timestamp::MAX, id(9)), numbers([])),
    ] {
        assert_eq!(
            range(
                &*table,
                Range {
                    from: after,
                    ..scheduled()
                }
            )
            .await,
            found,
            "{after:?}"
        );
    }
}

pub(super) async fn a_range_has_no_more_rows_than_its_limit(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &seven()).await;
    assert_eq!(
        range(
            &*table,
            Range {
                limit: 3,
                ..scheduled()
            }
        )
        .await,
        numbers([6, 2, 5])
    );
    assert_eq!(
        range(
            &*table,
            Range {
                limit: 0,
                ..scheduled()
            }
        )
        .await,
        numbers([])
    );
}

pub(super) async fn a_range_has_no_more_bytes_than_it_may(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows = [3, 4, 2]
        .into_iter()
        .zip(1..)
        .map(|(long, n)| paid(&vec![7; long], row(n, 5)));
    add(&*table, &rows.collect::<Vec<_>>()).await;
    for (bytes, found) in [
        (0, numbers([])),
        (1, numbers([1])),
        (3, numbers([1])),
        (4, numbers([1, 2])),
        (7, numbers([1, 2])),
        (8, numbers([1, 2, 3])),
    ] {
        assert_eq!(
            range(&*table, Range { bytes, ..scheduled() }).await,
            found,
            "{bytes}"
        );
    }
}

pub(super) async fn a_range_of_every_kind_has_its_limit_of_each(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let kinds = ["a", "b", "c"];
    let rows = (1..=9).map(|n| of(kinds[n as usize % 3], row(n, 5)));
    add(&*table, &rows.collect::<Vec<_>>()).await;
    let mut found = range(
        &*table,
        Range {
            kind: None,
            limit: 2,
            ..scheduled()
        },
    )
    .await;
    found.sort();
    assert_eq!(found, numbers([1, 2, 3, 4, 5, 6]));
}

pub(super) async fn a_range_is_of_one_state(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows: Vec<_> = (1..=5).map(|n| row(n, 5)).collect();
    add(&*table, &rows).await;
    for (n, state) in (1..).zip(State::ALL) {
        let into = into_state(&get(&*table, id(n)).await, state);
        assert_eq!(write(&*table, &[into]).await, ["written"]);
    }
    for (n, state) in (1..).zip(State::ALL) {
        assert_eq!(
            range(&*table, Range { state, ..scheduled() }).await,
            numbers([n]),
            "{state:?}"
        );
    }
}

pub(super) async fn a_range_by_wake_leaves_out_what_has_none(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5), row(2, 4)]).await;
    let by_wake = Range {
        by: By::Wake,
        ..scheduled()
    };
    let mut without = into_state(&get(&*table, id(1)).await, State::Scheduled);
    without.row.wake_at = None;
    assert_eq!(write(&*table, &[without]).await, ["written"]);
    assert_eq!(range(&*table, by_wake).await, numbers([2]));
    assert_eq!(range(&*table, scheduled()).await, numbers([2, 1]));
}

pub(super) async fn a_range_begins_and_ends_at_its_times(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let rows = [(1, 10), (2, 20), (3, 30)].map(|(n, in_minutes)| NewRow {
        due: When::After(minutes(in_minutes)),
        overdue_after: minutes(in_minutes),
        ..row(n, 0)
    });
    let old = row(4, 5);
    add(&*table, &[rows.to_vec(), vec![old]].concat()).await;
    for by in [By::Due, By::Wake] {
        let all = Range { by, ..scheduled() };
        let within = |within| Range {
            within: Some(minutes(within)),
            ..all.clone()
        };
        let old = if by == By::Due { vec![id(4)] } else { vec![] };
        assert_eq!(range(&*table, within(5)).await, old, "{by:?}");
        assert_eq!(
            range(&*table, within(25)).await,
            [old, numbers([1, 2])].concat(),
            "{by:?}"
        );
        let lately = Range {
            from: Start::Ago(minutes(1)),
            ..within(15)
        };
        assert_eq!(range(&*table, lately).await, numbers([1]), "{by:?}");
    }
}

pub(super) async fn a_range_backwards_begins_at_its_end(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows = (1..=4).map(|n| NewRow {
        overdue_after: Duration::from_secs(n),
        ..row(n, 5)
    });
    add(&*table, &rows.collect::<Vec<_>>()).await;
    let last = Range {
        by: By::Wake,
        backwards: true,
        limit: 2,
        ..scheduled()
    };
    assert_eq!(range(&*table, last).await, numbers([4, 3]));
}

pub(super) async fn each_range_of_a_call_is_answered_for_itself(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5), of("other", row(2, 5))]).await;
    let other = Range {
        kind: Some("other".into()),
        ..scheduled()
    };
    let none = Range {
        kind: Some("none".into()),
        ..scheduled()
    };
    let read = table
        .range(&[none, other, scheduled()], Columns::Lean)
        .await
        .unwrap();
    let found: Vec<_> = read.found.iter().map(ids).collect();
    assert_eq!(found, [numbers([]).as_slice(), &numbers([2]), &numbers([1])]);
}

pub(super) async fn rows_are_counted_within_each_span_up_to_the_most(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[seven(), vec![of("other", row(9, 1))]].concat()).await;
    let spans = [Duration::ZERO, LONG / 2, 2 * LONG];
    let count = async |most| {
        let counted = table.count(&KIND.into(), State::Scheduled, &spans, most).await;
        counted.unwrap().found
    };
    assert_eq!(count(100).await, [6, 6, 7]);
    assert_eq!(count(3).await, [3, 3, 3]);
}

pub(super) async fn kinds_are_those_that_have_rows_in_the_state(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows = ["b", "a", "a", "É", "c"]
        .into_iter()
        .zip(1..)
        .map(|(kind, n)| of(kind, row(n, 5)));
    add(&*table, &rows.collect::<Vec<_>>()).await;
    let done = into_state(&get(&*table, id(5)).await, State::Done);
    assert_eq!(write(&*table, &[done]).await, ["written"]);
    for (after, limit, found) in [
        (None, 9, vec!["a", "b", "É"]),
        (None, 2, vec!["a", "b"]),
        (Some("a"), 9, vec!["b", "É"]),
        (Some("aa"), 9, vec!["b", "É"]),
        (Some("É"), 9, vec![]),
    ] {
        let after = after.map(Into::into);
        let kinds = table
            .kinds(State::Scheduled, after.as_ref(), limit)
            .await
            .unwrap();
        assert_eq!(
            kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
            found,
            "{after:?} {limit}"
        );
    }
}

pub(super) async fn what_has_passed_is_removed_up_to_the_limit_of_each_kind(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows = (1..=8).map(|n| of(if n % 2 == 0 { "even" } else { KIND }, row(n, 5)));
    add(&*table, &rows.collect::<Vec<_>>()).await;
    let mut writes = Vec::new();
    for n in 1..=8 {
        let state = if n == 8 { State::Dead } else { State::Done };
        let mut write = into_state(&get(&*table, id(n)).await, state);
        // The seventh is kept for longer.
        write.row.wake_at = (n != 7).then_some(PAST).or(write.row.wake_at);
        writes.push(write);
    }
    assert_eq!(write(&*table, &writes).await, ["written"; 8]);
    let states = [State::Done, State::Cancelled];
    assert_eq!(table.remove(&states, 2).await.unwrap(), 4);
    assert_eq!(table.remove(&states, 9).await.unwrap(), 2);
    assert_eq!(table.remove(&states, 9).await.unwrap(), 0);
    let all: Vec<_> = (1..=8).map(id).collect();
    let mut left: Vec<_> = ids(&table.read(&all, &[], Columns::Lean).await.unwrap().found);
    left.sort();
    assert_eq!(left, numbers([7, 8]));
}
