//! Cases of guarded writes: only a row as it was read is written.

use std::sync::Arc;

use super::TableFixture;
use super::trial::{LONG, add, at, get, id, into_state, named, next, paid, row, said, write};
use crate::{State, Task};

pub(super) async fn a_write_of_the_version_that_was_read_is_written(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let now = add(&*table, &[named("k", row(1, 5))]).await;
    let mut write_all = next(&get(&*table, id(1)).await);
    let before = write_all.row.clone();
    write_all.row = Task {
        due_at: at(50),
        planned_at: at(60),
        state: State::Running,
        version: 7,
        wake_at: None,
        attempt: 3,
        started: true,
        stalls: 2,
        hop: 9,
        owner: Some("worker-1 é".to_owned()),
        last_error: Some("no luck".to_owned()),
        updated_at: now.after(LONG),
        finished_at: Some(now),
        ..before
    };
    assert_eq!(write(&*table, &[write_all.clone()]).await, ["written"]);
    assert_eq!(get(&*table, id(1)).await, write_all.row);
}

pub(super) async fn a_write_of_another_version_is_lost(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5)]).await;
    let read = get(&*table, id(1)).await;
    assert_eq!(write(&*table, &[next(&read)]).await, ["written"]);
    let current = get(&*table, id(1)).await;
    for version in [0, 1, 3, u64::MAX >> 1] {
        // It would be of the version that there is.
        let mut late = into_state(&read, State::Done);
        late.before.version = version;
        late.row.payload = b"late".to_vec();
        late.refill = true;
        assert_eq!(write(&*table, &[late]).await, ["lost"], "{version}");
    }
    assert_eq!(get(&*table, id(1)).await, current);
}

pub(super) async fn a_write_of_another_wake_at_is_lost_where_that_matters(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5)]).await;
    let read = get(&*table, id(1)).await;
    let mut renewal = next(&read);
    renewal.row.version = read.version;
    renewal.guards_wake = true;
    renewal.row.wake_at = Some(at(99));
    assert_eq!(write(&*table, &[renewal.clone()]).await, ["written"]);
    assert_eq!(write(&*table, &[renewal]).await, ["lost"], "it has moved");
    assert_eq!(
        write(&*table, &[next(&read)]).await,
        ["written"],
        "the version is the same"
    );
}

pub(super) async fn a_write_of_a_row_that_is_gone_is_lost(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let now = table.now().await.unwrap();
    let (never, _) = row(1, 5).row(now);
    assert_eq!(write(&*table, &[next(&never)]).await, ["lost"]);
}

pub(super) async fn a_payload_is_written_only_where_it_is_new(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[paid(b"before", row(1, 5)), paid(b"before", row(2, 5))]).await;
    let mut all = Vec::new();
    for n in [1, 2] {
        let mut write = next(&get(&*table, id(n)).await);
        write.row.payload = b"after".to_vec();
        write.row.headers = [("a".to_owned(), "b".to_owned())].into();
        write.row.max_attempts = Some(4);
        write.refill = n == 2;
        all.push(write);
    }
    assert_eq!(write(&*table, &all).await, ["written"; 2]);
    let (kept, refilled) = (get(&*table, id(1)).await, get(&*table, id(2)).await);
    assert_eq!(
        (&*kept.payload, kept.headers.len(), kept.max_attempts),
        (&b"before"[..], 0, None)
    );
    assert_eq!(
        (&*refilled.payload, refilled.headers.len(), refilled.max_attempts),
        (&b"after"[..], 1, Some(4))
    );
}

pub(super) async fn a_second_live_row_of_a_key_is_lost(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[named("k", row(1, 5))]).await;
    let done = into_state(&get(&*table, id(1)).await, State::Done);
    assert_eq!(write(&*table, &[done]).await, ["written"]);
    add(&*table, &[named("k", row(2, 5)), row(3, 5)]).await;
    let ended = get(&*table, id(1)).await;
    let writes = [
        into_state(&ended, State::Scheduled),
        next(&get(&*table, id(3)).await),
    ];
    assert_eq!(
        write(&*table, &writes).await,
        ["lost", "written"],
        "and holds up no other"
    );
    assert_eq!(get(&*table, id(1)).await, ended);
}

pub(super) async fn a_key_is_free_once_the_row_before_it_has_ended(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[named("k", row(1, 5))]).await;
    let done = into_state(&get(&*table, id(1)).await, State::Done);
    assert_eq!(write(&*table, &[done]).await, ["written"]);
    add(&*table, &[named("k", row(2, 5))]).await;
    let (ended, live) = (get(&*table, id(1)).await, get(&*table, id(2)).await);
    // The first frees the key for the second.
    let writes = [
        into_state(&live, State::Cancelled),
        into_state(&ended, State::Scheduled),
    ];
    let came = write(&*table, &writes).await;
    assert_eq!(came[0], "written");
    if came[1] == "lost" {
        assert_eq!(write(&*table, &writes[1..]).await, ["written"]);
    }
    let states = [get(&*table, id(1)).await.state, get(&*table, id(2)).await.state];
    assert_eq!(states, [State::Scheduled, State::Cancelled]);
}

pub(super) async fn each_write_of_a_call_is_answered_for_itself(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    let rows: Vec<_> = (1..=300).map(|n| row(n, 5)).collect();
    add(&*table, &rows).await;
    let mut writes = Vec::new();
    for n in (1..=300).rev() {
        let mut write = next(&get(&*table, id(n)).await);
        write.before.version -= u64::from(n % 3 == 0);
        // All become the same, except the first hundred.
        write.row.hop = u32::try_from(n).unwrap_or(0).min(100);
        writes.push(write);
    }
    let expected: Vec<_> = (1..=300)
        .rev()
        .map(|n| if n % 3 == 0 { "lost" } else { "written" })
        .collect();
    assert_eq!(write(&*table, &writes).await, expected);
    for n in [1, 2, 3, 298, 299, 300] {
        let found = get(&*table, id(n)).await;
        let hop = if n % 3 == 0 { 0 } else { n.min(100) };
        assert_eq!(u64::from(found.hop), hop, "{n}");
    }
}

pub(super) async fn of_many_writers_of_a_version_one_is_written(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5)]).await;
    let read = get(&*table, id(1)).await;
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..16 {
        let (table, mut write) = (Arc::clone(&table), next(&read));
        write.row.hop = n;
        writers.spawn(async move {
            loop {
                match said(&table.write(std::slice::from_ref(&write)).await.unwrap()[0]) {
                    // By one of the others, for the time of its statement.
                    "locked" => tokio::task::yield_now().await,
                    "written" => break Some(n),
                    _ => break None,
                }
            }
        });
    }
    let written: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    assert_eq!(written, [get(&*table, id(1)).await.hop]);
}

pub(super) async fn a_locked_row_is_said_to_be_locked(fixture: &dyn TableFixture) {
    let table = fixture.table().await;
    add(&*table, &[row(1, 5), row(2, 5)]).await;
    let writes = [next(&get(&*table, id(1)).await), next(&get(&*table, id(2)).await)];
    let Some(lock) = fixture.lock(id(1)).await else {
        return;
    };
    let came = write(&*table, &writes).await;
    assert_eq!(came[0], "locked");
    drop(lock);
    while write(&*table, &writes[..1]).await == ["locked"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&*table, id(1)).await.version, 2);
}
