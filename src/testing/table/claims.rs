//! Cases of claims: each due row goes to one.

use std::sync::Arc;

use super::TableFixture;
use super::trial::{KIND, LONG, add, claim, get, id, ids, into_state, numbers, of, paid, row, write};
use crate::store::table::{Table, Which};
use crate::store::{Claim, NewRow, When};
use crate::{State, TaskId};

async fn due(table: &dyn Table, claim: &Claim) -> Vec<TaskId> {
    let mut found = table.claim(Which::Due, claim).await.unwrap().found;
    found.rows.sort_by_key(|row| (row.due_at, row.id));
    ids(&found)
}

pub(super) async fn due_rows_are_claimed_the_longest_due_first(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[paid(b"x", row(1, 7)), row(2, 5), row(3, 6)]).await;
    assert_eq!(due(&*table, &claim(2)).await, numbers([2, 3]));
    let claimed = table.claim(Which::Due, &claim(9)).await.unwrap();
    let [row] = claimed.found.rows.try_into().unwrap();
    assert_eq!(row, get(&*table, id(1)).await, "as it is then, with its payload");
    let expected = (
        State::Running,
        2,
        1,
        false,
        Some("tester"),
        Some(claimed.now.after(LONG)),
    );
    let got = (
        row.state,
        row.version,
        row.attempt,
        row.started,
        row.owner.as_deref(),
        row.wake_at,
    );
    assert_eq!(got, expected);
}

pub(super) async fn rows_are_claimed_by_their_ids_and_versions(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5), row(2, 5), row(3, 5)]).await;
    let these = [(id(3), 1), (id(2), 2), (id(9), 1)];
    let found = table.claim(Which::These(&these), &claim(9)).await.unwrap().found;
    assert_eq!(ids(&found), numbers([3]));
}

pub(super) async fn no_more_is_claimed_than_there_is_room_for(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows: Vec<_> = (1..=6)
        .map(|n| of(if n > 4 { "other" } else { KIND }, row(n, 5)))
        .collect();
    add(&*table, &rows).await;
    let these: Vec<_> = (1..=6).map(|n| (id(n), 1)).collect();
    let two = table.claim(Which::These(&these), &claim(2)).await.unwrap().found;
    assert_eq!(two.rows.len(), 2, "and none of a kind that there is no room for");
    assert!(two.rows.iter().all(|row| row.kind == KIND.into()));
    assert_eq!(due(&*table, &claim(1)).await.len(), 1);
    assert_eq!(due(&*table, &claim(0)).await, []);
}

pub(super) async fn no_more_is_claimed_than_there_are_bytes_for(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows: Vec<_> = (1..=4).map(|n| paid(b"four", row(n, n as i64))).collect();
    add(&*table, &rows).await;
    let narrow = |bytes| Claim { bytes, ..claim(9) };
    assert_eq!(due(&*table, &narrow(0)).await, []);
    assert_eq!(due(&*table, &narrow(5)).await, numbers([1, 2]));
    let these = [(id(3), 1), (id(4), 1)];
    let found = table.claim(Which::These(&these), &narrow(4)).await.unwrap().found;
    assert_eq!(ids(&found), numbers([3]));
}

pub(super) async fn a_row_that_is_not_due_or_not_scheduled_is_not_claimed(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let later = NewRow {
        due: When::After(LONG),
        ..row(1, 0)
    };
    add(&*table, &[later, row(2, 5), row(3, 5), row(4, 5), row(5, 5)]).await;
    let states = [State::Running, State::Done, State::Cancelled, State::Dead];
    for (n, state) in (2..).zip(states) {
        let into = into_state(&get(&*table, id(n)).await, state);
        assert_eq!(write(&*table, &[into]).await, ["written"]);
    }
    let these: Vec<_> = (1..=5).flat_map(|n| [(id(n), 1), (id(n), 2)]).collect();
    assert_eq!(
        ids(&table.claim(Which::These(&these), &claim(9)).await.unwrap().found),
        []
    );
    assert_eq!(due(&*table, &claim(9)).await, []);
}

pub(super) async fn a_row_is_claimed_by_one(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows: Vec<_> = (1..=40).map(|n| row(n, 5)).collect();
    add(&*table, &rows).await;
    let mut claimers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let table = Arc::clone(&table);
        claimers.spawn(async move {
            let mut claimed = Vec::new();
            for _ in 0..20 {
                let found = table.claim(Which::Due, &claim(3)).await.unwrap().found;
                claimed.append(&mut ids(&found));
            }
            claimed
        });
    }
    let mut all: Vec<_> = claimers.join_all().await.concat();
    // Those that were locked whenever a claim came.
    loop {
        let mut left = due(&*table, &claim(40)).await;
        if left.is_empty() {
            break;
        }
        all.append(&mut left);
    }
    all.sort();
    assert_eq!(all, (1..=40).map(id).collect::<Vec<_>>());
}

pub(super) async fn a_locked_row_is_passed_over(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5), row(2, 6)]).await;
    let Some(lock) = fixture.lock(id(1)).await else {
        return;
    };
    let found = due(&*table, &claim(9)).await;
    assert!(!found.contains(&id(1)), "{found:?}");
    drop(lock);
}
