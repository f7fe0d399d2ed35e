//! Keeps rows in memory, and their changes in a journal in a file, which restores them after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Bound;
use std::path::Path;

use delayline::store::Noted;
use delayline::store::table::{By, Range, Start};
use delayline::{Key, Kind, State, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

const FIRST_ID: TaskId = TaskId::from_bytes([0; 16]);
const LAST_ID: TaskId = TaskId::from_bytes([0xFF; 16]);

/// Rows in three orders, and the file for their changes.
pub(crate) struct Journal {
    rows: BTreeMap<TaskId, Kept>,
    by_due: BTreeSet<Place>,
    by_wake: BTreeSet<Place>,
    /// By whether they are live, and then by when they were made: so a key means its last row.
    by_key: BTreeSet<(Kind, Key, bool, Timestamp, TaskId)>,
    /// None once the memory may differ from the disk.
    file: Option<File>,
    /// The changes of a call, which are to be in the file when it ends.
    lines: Vec<u8>,
    _lock: File,
}

type Place = (State, Kind, Timestamp, TaskId);

/// A row and its history.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) row: Task,
    history: String,
}

impl Kept {
    pub(crate) fn new(row: Task, noted: Noted) -> Self {
        let Noted { history } = noted;
        Self { row, history }
    }

    pub(crate) fn noted(&self) -> Noted {
        Noted {
            history: self.history.clone(),
        }
    }
}

/// The new state of a row; none, it was removed.
#[derive(Serialize, Deserialize)]
struct Line {
    id: TaskId,
    kept: Option<Kept>,
}

impl Journal {
    /// Opens the journal of a folder, which is created if it is missing. One process has it at a time.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock()?;
        let (path, aside) = (folder.join("journal"), folder.join("journal.new"));
        let mut journal = Self {
            rows: BTreeMap::new(),
            by_due: BTreeSet::new(),
            by_wake: BTreeSet::new(),
            by_key: BTreeSet::new(),
            file: Some(File::create(&aside)?),
            lines: Vec::new(),
            _lock: lock,
        };
        let before = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            before => before?,
        };
        for line in before.split_inclusive(|&byte| byte == b'\n') {
            // A line without its line break was cut off by a crash, before it was acknowledged.
            if line.ends_with(b"\n") {
                journal.apply(serde_json::from_slice(line)?);
            }
        }
        // From now on one line for each row in place of all its changes.
        let all: Vec<_> = journal.rows.values().cloned().collect();
        journal.call(|journal| all.into_iter().try_for_each(|kept| journal.set(kept)))?;
        fs::rename(aside, path)?;
        File::open(folder)?.sync_all()?;
        Ok(journal)
    }

    /// Runs a call. Its changes are on the disk when this returns.
    pub(crate) fn call<A>(&mut self, call: impl FnOnce(&mut Self) -> io::Result<A>) -> io::Result<A> {
        let file = self.file.take();
        let mut file =
            file.ok_or_else(|| io::Error::other("what was written last may not be on the disk"))?;
        let answer = call(self)?;
        if !self.lines.is_empty() {
            file.write_all(&self.lines)?;
            file.sync_data()?;
            self.lines.clear();
        }
        self.file = Some(file);
        Ok(answer)
    }

    /// Adds a row, or replaces it.
    pub(crate) fn set(&mut self, kept: Kept) -> io::Result<()> {
        let id = kept.row.id;
        self.write(id, Some(kept))
    }

    pub(crate) fn remove(&mut self, id: TaskId) -> io::Result<()> {
        self.write(id, None)
    }

    fn write(&mut self, id: TaskId, kept: Option<Kept>) -> io::Result<()> {
        let line = Line { id, kept };
        serde_json::to_writer(&mut self.lines, &line)?;
        self.lines.push(b'\n');
        self.apply(line);
        Ok(())
    }

    fn apply(&mut self, Line { id, kept }: Line) {
        if let Some(Kept { row, .. }) = self.rows.remove(&id) {
            self.by_due.remove(&place(&row, row.due_at));
            if let Some(time) = row.wake_at {
                self.by_wake.remove(&place(&row, time));
            }
            if let Some(named) = named(&row) {
                self.by_key.remove(&named);
            }
        }
        if let Some(kept) = kept {
            let row = &kept.row;
            self.by_due.insert(place(row, row.due_at));
            let by_wake = row.wake_at.map(|time| place(row, time));
            self.by_wake.extend(by_wake);
            self.by_key.extend(named(row));
            self.rows.insert(id, kept);
        }
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Kept> {
        self.rows.get(&id)
    }

    /// Finds the live row of a key, or else the newest.
    pub(crate) fn of_key(&self, kind: &Kind, key: &Key) -> Option<&Kept> {
        let end = |is_live, time, id| (kind.clone(), key.clone(), is_live, time, id);
        let all = end(false, Timestamp::MIN, FIRST_ID)..=end(true, Timestamp::MAX, LAST_ID);
        let (.., id) = self.by_key.range(all).next_back()?;
        self.get(*id)
    }

    /// Finds the live row of the kind and key of another.
    pub(crate) fn live(&self, kind: &Kind, key: Option<&Key>) -> Option<&Kept> {
        self.of_key(kind, key?).filter(|kept| kept.row.state.is_live())
    }

    /// Lists the kinds that have rows in a state, each found behind the last row of the one before.
    pub(crate) fn kinds(&self, state: State, after: Option<&Kind>) -> impl Iterator<Item = Kind> {
        let behind = move |kind: &Kind| Bound::Excluded((state, kind.clone(), Timestamp::MAX, LAST_ID));
        let next = move |from: Bound<Place>| {
            let (of, kind, ..) = self.by_due.range((from, Bound::Unbounded)).next()?;
            (*of == state).then(|| kind.clone())
        };
        let first = after.map_or_else(
            || Bound::Included((state, Kind::from(""), Timestamp::MIN, FIRST_ID)),
            behind,
        );
        std::iter::successors(next(first), move |kind| next(behind(kind)))
    }

    pub(crate) fn range(&self, range: &Range, now: Timestamp) -> Vec<&Kept> {
        let kinds = match &range.kind {
            Some(kind) => vec![kind.clone()],
            None => self.kinds(range.state, None).collect(),
        };
        let of_kinds = kinds.iter().flat_map(|kind| self.of_kind(kind, range, now));
        of_kinds.collect()
    }

    fn of_kind(&self, kind: &Kind, range: &Range, now: Timestamp) -> Vec<&Kept> {
        let from = match range.from {
            Start::First => (Timestamp::MIN, FIRST_ID),
            Start::Ago(ago) => (now.shifted(-(ago.as_millis() as i64)), FIRST_ID),
            Start::After(time, id) => (time, id),
        };
        let until = range.within.map_or(Timestamp::MAX, |within| now.after(within));
        if from > (until, LAST_ID) {
            return Vec::new();
        }
        let end = |(time, id)| (range.state, kind.clone(), time, id);
        let all = end(from)..=end((until, LAST_ID));
        let places = match range.by {
            By::Due => self.by_due.range(all),
            By::Wake => self.by_wake.range(all),
        };
        let is_after = |place: &&Place| range.from != Start::After(place.2, place.3);
        let mut rows = places.filter(is_after).filter_map(|place| self.get(place.3));
        let next = || match range.backwards {
            true => rows.next_back(),
            false => rows.next(),
        };
        let mut bytes = 0;
        let fits = |kept: &&Kept| {
            let fits = bytes < range.bytes;
            bytes += kept.row.payload.len();
            fits
        };
        let found = std::iter::from_fn(next).take(range.limit).take_while(fits);
        found.collect()
    }
}

fn place(row: &Task, time: Timestamp) -> Place {
    (row.state, row.kind.clone(), time, row.id)
}

fn named(row: &Task) -> Option<(Kind, Key, bool, Timestamp, TaskId)> {
    let key = row.key.clone()?;
    Some((row.kind.clone(), key, row.state.is_live(), row.created_at, row.id))
}
