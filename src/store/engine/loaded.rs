//! Rows that were read, and what a batch has made of them in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::rows::Rows;
use crate::store::table::{Fault, Found, Outcome, Table, Unreadable, Write, lean};
use crate::store::{Paused, Target};
use crate::{Error, Key, Kind, State, Task, TaskId};

/// Rows over which a batch is decided in memory, row after row as one by one.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) rows: Rows,
    /// What each was like when it was read, without what is long.
    read: BTreeMap<TaskId, Task>,
    /// Those of which nothing can be decided.
    ids: BTreeMap<TaskId, Unreadable>,
    keys: BTreeMap<(Kind, Key), Unreadable>,
    /// Whether they were not read, but given by their worker.
    is_given: bool,
}

/// Whether a row is as it was.
fn is_as(before: &Task, row: &Task) -> bool {
    let times = (before.wake_at, before.updated_at) == (row.wake_at, row.updated_at);
    times && (before.version, before.started) == (row.version, row.started)
}

impl Loaded {
    pub(super) fn of(found: Found) -> Self {
        let mut loaded = Self::default();
        loaded.add(found);
        loaded
    }

    /// Rows of claims as their worker has them.
    pub(super) fn given<'t>(claimed: impl Iterator<Item = &'t Task>) -> Self {
        let mut loaded = Self {
            is_given: true,
            ..Self::default()
        };
        loaded.add(Found::of(claimed.map(lean).collect()));
        loaded
    }

    /// Adds rows; of those that were read twice the first reading counts.
    pub(super) fn add(&mut self, found: Found) {
        for row in &found.rows {
            self.read.entry(row.id).or_insert_with(|| lean(row));
        }
        self.rows.load(found.rows);
        for unreadable in found.unreadable {
            if let Some(key) = &unreadable.key {
                self.keys.insert(key.clone(), unreadable.clone());
            }
            if let Some(id) = unreadable.id {
                self.ids.insert(id, unreadable);
            }
        }
    }

    /// Whether the row of an id cannot be read.
    pub(super) fn is_unreadable(&self, id: TaskId) -> bool {
        self.ids.contains_key(&id)
    }

    /// Why nothing can be decided of a target, if so.
    pub(super) fn row_error(&self, target: &Target) -> Option<&Unreadable> {
        match target {
            Target::Id(id) => self.ids.get(id),
            Target::Key(kind, key) => self.keys.get(&(kind.clone(), key.clone())),
        }
    }

    /// Why nothing can be decided of the live row of a key, if so. One that has ended is in the way of no other.
    pub(super) fn row_error_of_live(&self, kind: &Kind, key: &Key) -> Option<&Unreadable> {
        let of_key = self.keys.get(&(kind.clone(), key.clone()));
        of_key.filter(|unreadable| unreadable.is_live)
    }

    /// What has become of the rows that were read: first of those that are not live any more, as each frees a key.
    fn writes(&self, refilled: &BTreeSet<TaskId>) -> Vec<Write> {
        let write = |(id, before): (&TaskId, &Task)| {
            let row = self.rows.get(*id).filter(|row| !is_as(before, row))?;
            Some(Write {
                before: before.clone(),
                // The version does not tell of what renewals and sweeps write: the end of a lease, or when a wake-up is
                // overdue. So a write that was decided by it is guarded by it as well. A worker that ends its own claim
                // decides nothing by it, and its lease may have been renewed since it was given the row.
                guards_wake: !self.is_given
                    && (before.state == State::Running || before.version == row.version),
                row: row.clone(),
                refill: refilled.contains(id),
                noted: self.rows.noted(*id).cloned().unwrap_or_default(),
            })
        };
        let mut writes: Vec<_> = self.read.iter().filter_map(write).collect();
        writes.sort_by_key(|write| write.row.state.is_live());
        writes
    }

    /// Writes what has become of the rows; says of each that was not written why.
    pub(super) async fn write(
        &self,
        table: &impl Table,
        refilled: &BTreeSet<TaskId>,
    ) -> Result<BTreeMap<TaskId, Outcome>, Error> {
        let writes = self.writes(refilled);
        if writes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let came = table.write(&writes).await?;
        if came.len() != writes.len() {
            return Err(Error::miscounted(table.name(), came.len(), writes.len()));
        }
        let ids = writes.iter().map(|write| write.row.id);
        Ok(ids.zip(came).filter(|(_, came)| !came.is_written()).collect())
    }
}

/// The error of a call that means a row that cannot be read.
pub(super) fn unreadable(store: &'static str, row: &Unreadable) -> Error {
    let is_of_pauses = |(kind, _): &(Kind, Key)| kind.as_str() == Paused::KIND;
    if row.is_live && row.fault == Fault::Row && row.key.as_ref().is_some_and(is_of_pauses) {
        return unreadable_pause(store, row);
    }
    let (transient, source) = match row.fault {
        Fault::Server { transient } => (transient, format!("the row cannot be read: {}", row.why)),
        Fault::Row => {
            let (row, why) = (digits(row), &row.why);
            let source = format!("the row {row} cannot be read; repair or remove it in the database: {why}");
            (false, source)
        }
    };
    Error::Store {
        store,
        transient,
        source: source.into(),
    }
}

/// The error of a call that needs to know of a pause that cannot be read. It is transient, as the same call succeeds once a
/// person has been there: until then all wait, and no worker gives up.
pub(super) fn unreadable_pause(store: &'static str, row: &Unreadable) -> Error {
    // The server knows it by `the row … of kind …`, and passes it on to its callers.
    let source = format!(
        "the row {} of kind {} pauses a kind and cannot be read, so which kinds are paused is not known, and no task of any \
         kind starts: repair or remove that row in the database by hand: {}",
        digits(row),
        Paused::KIND,
        row.why
    );
    Error::Store {
        store,
        transient: true,
        source: source.into(),
    }
}

/// By what people find a row: its id, or else what its table has in the place of one.
pub(super) fn digits(row: &Unreadable) -> String {
    let bytes = row.id.as_ref().map_or(&row.row[..], |id| id.as_bytes());
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
