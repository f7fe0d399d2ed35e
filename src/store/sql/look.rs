//! Rows that were looked at for one claimer.

use std::collections::BTreeMap;

use crate::store::{Claim, Looked, Pending, Stamped};
use crate::{Kind, TaskId, Timestamp};

/// A look at rows for one claimer, at one time.
pub(in crate::store) struct Look<'a> {
    pub(in crate::store) claim: &'a Claim,
    now: Timestamp,
    room: BTreeMap<Kind, usize>,
    /// For how many bytes of payloads there is room.
    bytes: usize,
    /// The rows to claim.
    pub(in crate::store) due: Vec<TaskId>,
    pub(in crate::store) found: Looked,
}

impl<'a> Look<'a> {
    pub(in crate::store) fn new(claim: &'a Claim, now: Timestamp) -> Self {
        Self {
            claim,
            now,
            room: claim.room.clone(),
            bytes: claim.bytes,
            due: Vec::new(),
            found: Looked::default(),
        }
    }

    /// Looks at a scheduled row with so many bytes of payload, and marks it to be claimed if it is due and there is room.
    pub(in crate::store) fn at(&mut self, row: Pending, bytes: usize) {
        if row.due_at > self.now {
            self.found.early.push(row);
            return;
        }
        let room = self.room.get_mut(&row.wake.kind);
        let Some(room) = room.filter(|room| **room > 0 && self.bytes > 0) else {
            *self.found.waiting.entry(row.wake.kind).or_default() += 1;
            return;
        };
        *room -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.due.push(row.wake.id);
    }

    /// When it looked.
    #[cfg(feature = "mysql")]
    pub(in crate::store) fn now(&self) -> Timestamp {
        self.now
    }

    /// What was found.
    pub(in crate::store) fn stamped(self) -> Stamped<Looked> {
        Stamped {
            now: self.now,
            found: self.found,
        }
    }
}
