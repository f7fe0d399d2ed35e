//! Makes rows, claims and changes for tests of several SQL stores.

use std::future::Future;
use std::time::Duration;

use crate::store::{Change, Claim, Expect, NewRow, Target, Verb, When};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::store::{Ending, Renewal, Step};
use crate::task::wake::Wake;
use crate::{Kind, TaskId};

pub(in crate::store) const LEASE: Duration = Duration::from_secs(30);

pub(in crate::store) fn id(number: usize) -> TaskId {
    TaskId::from_bytes((number as u128).to_be_bytes())
}

pub(in crate::store) fn new_row(number: usize, due: Duration) -> NewRow {
    NewRow {
        id: id(number),
        kind: "k".into(),
        key: None,
        payload: vec![0, 1, 255],
        headers: Default::default(),
        due: When::After(due),
        overdue_after: due,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

pub(in crate::store) fn named(number: usize, key: &str) -> NewRow {
    NewRow {
        key: Some(key.into()),
        ..new_row(number, LEASE)
    }
}

pub(in crate::store) fn claim(room: usize) -> Claim {
    Claim {
        owner: "me".into(),
        lease: LEASE,
        room: [(Kind::from("k"), room)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

pub(in crate::store) fn due_rows(numbers: impl IntoIterator<Item = usize>) -> Vec<NewRow> {
    let row = |number| new_row(number, Duration::ZERO);
    numbers.into_iter().map(row).collect()
}

pub(in crate::store) fn wakes(numbers: impl IntoIterator<Item = usize>) -> Vec<Wake> {
    let wake = |number| Wake {
        id: id(number),
        kind: "k".into(),
        version: 1,
    };
    numbers.into_iter().map(wake).collect()
}

pub(in crate::store) fn change(target: impl Into<Target>, verb: Verb) -> Change {
    Change {
        target: target.into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    }
}

pub(in crate::store) fn cancel(target: impl Into<Target>) -> Change {
    change(target, Verb::Cancel)
}

/// A claim to renew, not started.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn held(id: TaskId, version: u64) -> Renewal {
    Renewal {
        id,
        version,
        started: false,
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn done(number: usize, version: u64) -> Step {
    Step::end(id(number), version, Ending::Done)
}

/// For as long as a broken test may hang.
pub(in crate::store) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}
