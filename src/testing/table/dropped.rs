//! Cases of calls that are dropped half-way: each row is as it was, or as the call wrote it, and none is kept from others.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::TableFixture;
use super::trial::{KIND, add, at, claim, get, id, ids, into_state, named, next, paid, row, said, write};
use crate::store::table::{Columns, Table, Which};
use crate::{State, Task};

/// Polls a call until it has been pending so often, and drops it. Whether it ended before.
async fn ends_before(pauses: usize, call: impl Future) -> bool {
    let mut call = pin!(call);
    let mut left = pauses;
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if left == 0 => Poll::Ready(false),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Writes the next version of a row, and returns the one before it, which no dropped call can change any more.
async fn settle(table: &dyn Table, n: u64, state: State) -> Task {
    loop {
        let row = get(table, id(n)).await;
        if write(table, &[into_state(&row, state)]).await == ["written"] {
            return row;
        }
        tokio::task::yield_now().await;
    }
}

pub(super) async fn a_write_that_is_dropped_leaves_its_row_whole(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[paid(b"0", row(1, 0))]).await;
    for pauses in 0.. {
        let mut change = next(&get(&*table, id(1)).await);
        change.row.due_at = at(pauses as i64 + 1);
        change.row.payload = (pauses + 1).to_string().into_bytes();
        change.refill = true;
        let ended = ends_before(pauses, table.write(std::slice::from_ref(&change))).await;
        let after = settle(&*table, 1, State::Scheduled).await;
        if after.version == change.row.version {
            assert_eq!(after, change.row, "written after {pauses}");
        } else {
            assert_eq!(after, change.before, "not written after {pauses}");
        }
        if ended {
            break;
        }
    }
}

pub(super) async fn an_insert_that_is_dropped_leaves_no_part_of_a_row(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    for pauses in 0.. {
        let n = pauses as u64 + 1;
        let new = named("k", paid(b"whole", row(n, 0)));
        let ended = ends_before(pauses, table.insert(std::slice::from_ref(&new))).await;
        // By this call, or by that which was dropped.
        while said(&table.insert(std::slice::from_ref(&new)).await.unwrap().found[0]) != "written" {
            let read = table.read(&[id(n)], &[], Columns::Lean).await.unwrap();
            if !read.found.rows.is_empty() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let row = get(&*table, id(n)).await;
        assert_eq!(row, new.row(row.created_at).0, "after {pauses}");
        let by_key = table.read(&[], &[(KIND.into(), "k".into())], Columns::All).await;
        assert_eq!(by_key.unwrap().found.rows, [row], "after {pauses}");
        // The key is free for the next.
        settle(&*table, n, State::Done).await;
        if ended {
            break;
        }
    }
}

pub(super) async fn a_claim_that_is_dropped_has_its_rows_or_leaves_them(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    for pauses in 0.. {
        let n = pauses as u64 + 1;
        add(&*table, &[paid(b"whole", row(n, 0))]).await;
        let before = get(&*table, id(n)).await;
        let ended = ends_before(pauses, table.claim(Which::Due, &claim(9))).await;
        // By this call, or by that which was dropped.
        while ids(&table.claim(Which::Due, &claim(9)).await.unwrap().found).is_empty() {
            if get(&*table, id(n)).await.state == State::Running {
                break;
            }
            tokio::task::yield_now().await;
        }
        let after = get(&*table, id(n)).await;
        let expected = Task {
            state: State::Running,
            version: 2,
            attempt: 1,
            wake_at: after.wake_at,
            owner: Some("tester".to_owned()),
            updated_at: after.updated_at,
            ..before
        };
        assert_eq!(after, expected, "after {pauses}");
        if ended {
            break;
        }
    }
}
