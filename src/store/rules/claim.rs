//! Decides which of some rows a claim takes, and computes what it makes of each.
//!
//! This rule is written three more times, for databases that find, lock and write due rows in one step: `claim_these`,
//! `claim_due` and `claimed!` of PostgreSQL (`postgres/sql.rs`, `postgres/sql/pieces.rs`), `take_text` of MySQL
//! (`mysql/claim.rs`), which writes what is chosen here, and the script of Redis (`redis/claim.lua`). Each has to make the same
//! of a row: `src/testing/table/claims.rs` holds it to that.

use std::collections::BTreeMap;

use super::transition::enter;
use crate::store::table::{Which, Write, lean};
use crate::store::{Claim, Note, Noted};
use crate::{Kind, State, Task, TaskId, Timestamp};

/// How many more rows and bytes a claim takes.
#[derive(Debug)]
pub(in crate::store) struct Capacity<'a> {
    claim: &'a Claim,
    room: BTreeMap<Kind, usize>,
    /// For how many bytes of payloads there is room.
    bytes: usize,
    /// What is noted of each claim.
    note: Note,
}

impl<'a> Capacity<'a> {
    pub(in crate::store) fn new(claim: &'a Claim) -> Self {
        Self {
            claim,
            room: claim.room.clone(),
            bytes: claim.bytes,
            note: Note {
                event: claim.claimed(),
            },
        }
    }

    /// Whether there is room for a row of a kind.
    pub(in crate::store) fn has_room(&self, kind: &Kind) -> bool {
        self.bytes > 0 && self.room.get(kind).is_some_and(|room| *room > 0)
    }

    /// Takes the room of a row.
    pub(in crate::store) fn take_room(&mut self, row: &Task) {
        self.take_room_of(&row.kind, row.payload.len());
    }

    /// Takes the room of a row of a kind with so many bytes of payload.
    pub(in crate::store) fn take_room_of(&mut self, kind: &Kind, bytes: usize) {
        if let Some(room) = self.room.get_mut(kind) {
            *room = room.saturating_sub(1);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Leaves of a claim what there is room for.
    pub(in crate::store) fn leave(self, claim: &mut Claim) {
        claim.room = self.room;
        claim.bytes = self.bytes;
    }

    /// Claims of rows those that are scheduled, due by now and wanted, as far as there is room: the longest due first, whatever
    /// their kind, or else in the order in which they are wanted.
    pub(in crate::store) fn claim_all(
        mut self,
        which: Which<'_>,
        mut rows: Vec<Task>,
        now: Timestamp,
    ) -> Vec<Write> {
        match which {
            Which::Due => rows.sort_by_key(|row| (row.due_at, row.id)),
            Which::These(wanted) => {
                let mut by_id: BTreeMap<TaskId, Task> = rows.into_iter().map(|row| (row.id, row)).collect();
                let found = wanted.iter().filter_map(|(id, version)| {
                    let row = by_id.remove(id)?;
                    (row.version == *version).then_some(row)
                });
                rows = found.collect();
            }
        }
        rows.into_iter().filter_map(|row| self.take(row, now)).collect()
    }

    fn take(&mut self, mut row: Task, now: Timestamp) -> Option<Write> {
        let is_due = row.state == State::Scheduled && row.due_at <= now;
        if !is_due || !self.has_room(&row.kind) {
            return None;
        }
        self.take_room(&row);
        let (before, due_before) = (lean(&row), Some(row.due_at));
        claim(&mut row, self.claim, now);
        let mut noted = Noted::default();
        noted.add(&self.note, &row, now, due_before);
        Some(Write {
            before,
            guards_wake: false,
            row,
            refill: false,
            noted,
        })
    }
}

/// One transition, from scheduled to running.
fn claim(row: &mut Task, claim: &Claim, now: Timestamp) {
    enter(row, State::Running, now);
    row.attempt += 1;
    row.owner = Some(claim.owner.to_string());
    row.wake_at = Some(now.after(claim.lease));
}
