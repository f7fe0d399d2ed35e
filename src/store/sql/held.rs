//! What becomes of rows that a worker holds, decided over rows that are locked.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::session::Changed;
use crate::store::{Hop, Pending, Settlement, row};
use crate::{State, Task, TaskId, Timestamp};

/// The hops that rows take: how many each, nearly always one, and its `wake_at` after them.
pub(in crate::store) type Taken = BTreeMap<TaskId, (u32, Timestamp)>;

/// Records hops of rows; says of each, in the order given, whether it is taken.
pub(in crate::store) fn hop(
    rows: &mut BTreeMap<TaskId, (State, Pending)>,
    hops: &[Hop],
    now: Timestamp,
) -> (Vec<bool>, Taken) {
    let mut taken = Taken::new();
    let record = |hop: &Hop| {
        let Some((State::Scheduled, row)) = rows.get_mut(&hop.id) else {
            return false;
        };
        if row.wake.version != hop.version {
            return false;
        }
        row.wake.version += 1;
        let (count, wake_at) = taken.entry(hop.id).or_insert((0, now));
        *count += 1;
        *wake_at = now.after(hop.look_in);
        true
    };
    let recorded = hops.iter().map(record).collect();
    (recorded, taken)
}

/// Ends claims of rows; says of each, in the order given, whether it is ended, and gives the rows that were.
pub(in crate::store) fn end(
    rows: Vec<Task>,
    settlements: &[Settlement],
    now: Timestamp,
    history: Duration,
) -> (Vec<bool>, Vec<Changed>) {
    let mut rows: BTreeMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
    let mut ended = Vec::new();
    let end = |settlement: &Settlement| {
        let Entry::Occupied(held) = rows.entry(settlement.id) else {
            return false;
        };
        if held.get().state != State::Running || held.get().version != settlement.version {
            return false;
        }
        let mut row = held.remove();
        row::end(&mut row, settlement.ending.clone(), now, history);
        ended.push((settlement.version, row));
        true
    };
    let settled = settlements.iter().map(end).collect();
    (settled, ended)
}
