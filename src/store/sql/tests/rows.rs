//! Makes rows, claims and changes for tests of several SQL stores.

use std::time::Duration;

use crate::store::{Change, Claim, Expect, NewRow, Target, Verb, When};
use crate::{Kind, TaskId};

pub(super) const LEASE: Duration = Duration::from_secs(30);

pub(super) fn id(number: usize) -> TaskId {
    TaskId::from_bytes((number as u128).to_be_bytes())
}

pub(super) fn new_row(number: usize, due: Duration) -> NewRow {
    NewRow {
        id: id(number),
        kind: "k".into(),
        key: None,
        payload: vec![0, 1, 255],
        headers: Default::default(),
        due: When::After(due),
        look_in: due,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

pub(super) fn named(number: usize, key: &str) -> NewRow {
    NewRow {
        key: Some(key.into()),
        ..new_row(number, LEASE)
    }
}

pub(super) fn claim(room: usize) -> Claim {
    Claim {
        owner: "me".into(),
        lease: LEASE,
        room: [(Kind::from("k"), room)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

pub(super) fn cancel(target: impl Into<Target>) -> Change {
    Change {
        target: target.into(),
        verb: Verb::Cancel,
        expect: Expect::Anything,
        note: Default::default(),
    }
}
