//! Keeps rows in a database of any sort: what an [`Engine`](super::Engine) needs of it.

use std::time::Duration;

use async_trait::async_trait;

use super::rules::Capacity;
use super::{Claim, NewRow, Noted, Stamped};
use crate::{Error, Key, Kind, State, Task, TaskId, Timestamp};

/// Keeps rows in a database, of which an [`Engine`](super::Engine) makes a [`Store`](super::Store).
///
/// The engine reads rows, decides what becomes of them, and has them written if they still are of the version that was read. So
/// no function knows a rule but [`claim`](Self::claim), which may be left out. Each is one statement or one short transaction,
/// and atomic for each row; a batch may be split between its rows. What is written is durable when the call returns. None should
/// wait for a row that another transaction has locked: it says so, and the engine asks again.
///
/// Times are milliseconds UTC by the table's own clock, which is read in the call itself. An error of a call means that
/// nothing is known of any of its rows, which may be of many callers: all of them get it. So one row that the database refuses
/// is no error of the call, but [`Outcome::Refused`]. An error is transient where the same call may succeed later. A call may
/// be dropped half-way.
///
/// The conformance suite in `delayline::testing` (feature `testing`) holds an implementation to this page; one with its test is
/// the example `own_table`, and `docs/a-table-of-your-own.md` says where to begin. It is written under
/// `#[async_trait::async_trait]`, of the crate `async-trait`, with the methods as `async fn`. What it cannot do it says by
/// [`Error::Store`], whose fields are its own to fill.
#[async_trait]
pub trait Table: Send + Sync {
    /// A short name for logs and errors, such as `sqlite`.
    fn name(&self) -> &'static str;

    /// How many calls of callers are in flight while more come, which then share the next ones. None: each caller has a call of
    /// its own, as a commit costs no more than a row.
    fn calls(&self) -> Option<usize> {
        None
    }

    /// The time by the table's clock.
    async fn now(&self) -> Result<Timestamp, Error>;

    /// The rows of these ids, and of each of these keys its live row, else its newest: by the time at which it was written,
    /// then by id. In any order, each once or more. What is absent is left out.
    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error>;

    /// Reads rows as [`read`](Self::read) does, with all columns, before they are changed. A table in a transaction of the
    /// service's own locks them until it ends, but for rows that no caller may change: running ones whose lease has not
    /// ended, and finished ones.
    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Result<Stamped<Found>, Error> {
        self.read(ids, keys, Columns::All).await
    }

    /// The rows of these ids that their workers are about to end, renew or send on their way, without payload and headers. A
    /// transaction of a service's own may keep others from them until it ends.
    async fn hold_for_worker(&self, ids: &[TaskId]) -> Result<Stamped<Found>, Error> {
        self.read(ids, &[], Columns::Lean).await
    }

    /// The rows of ranges of the indexes, an answer for each range, its rows in its order: each by the time at which it is read.
    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error>;

    /// How many rows of a kind and state are due within each of these spans from now, each counted by an index, up to `most`.
    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error>;

    /// Writes rows as [`NewRow::row`] makes them at the table's time, each unless a row of its id, or a live one of its kind
    /// and key, is there or comes before it: that one is [`Outcome::Lost`]. Where one row of a call is, the table may say so of
    /// others as well, which a call of those alone then writes.
    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error>;

    /// Writes what has become of rows, each if it is as it was. No two are of one id.
    ///
    /// A row that would be a second live one of its key is [`Outcome::Lost`] as well. What frees a key is given before what
    /// takes it. A table that writes them in another order says of the latter that it is lost, and is asked for it again.
    async fn write(&self, rows: &[Write]) -> Result<Vec<Outcome>, Error>;

    /// Claims rows that are scheduled and due, as far as the claim has room for their kind and bytes; gives them, each as it
    /// is then, with its payload. Those that are locked it passes over.
    ///
    /// What is due and cannot be read it [sets aside](Self::set_aside) for the time of the lease, so that it is in no
    /// other's way, and gives as well.
    ///
    /// A database that finds and writes in one statement does better than this, which reads, decides and writes; what comes of
    /// a row has to be the same.
    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Result<Stamped<Found>, Error> {
        let Stamped { now, found } = match which {
            Which::These(rows) => {
                let ids: Vec<_> = rows.iter().map(|(id, _)| *id).collect();
                self.read(&ids, &[], Columns::All).await?
            }
            Which::Due => {
                let ranges: Vec<_> = Range::due(claim).collect();
                let Stamped { now, found } = self.range(&ranges, Columns::All).await?;
                let found = found.into_iter().fold(Found::default(), Found::and);
                Stamped { now, found }
            }
        };
        let unreadable = found.unreadable;
        if !unreadable.is_empty() {
            self.set_aside(&unreadable, claim.lease).await?;
        }
        let writes = Capacity::new(claim).claim_all(which, found.rows, now);
        let mut rows = Vec::with_capacity(writes.len());
        if !writes.is_empty() {
            let came = self.write(&writes).await?;
            let written = writes.into_iter().zip(came);
            rows.extend(written.filter_map(|(write, came)| came.is_written().then_some(write.row)));
        }
        let found = Found { rows, unreadable };
        Ok(Stamped { now, found })
    }

    /// Hides rows that cannot be read and are due or overdue: for the time of `pause` neither a claim nor a range by `wake_at`
    /// finds one. Its version and contents stay, so that an operator can repair it.
    /// A table that does so by a lease gives it the owner `nobody: the row cannot be read`: else its end counts as a stall.
    ///
    /// Only for a table that gives such rows.
    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
        let _ = (rows, pause);
        Ok(())
    }

    /// Removes rows in these states whose `wake_at` has passed, up to `limit` of each kind, whether they can be read or not;
    /// says how many.
    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error>;

    /// The kinds of which there are rows in a state, in their order by bytes: up to `limit` after one of them.
    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error>;

    /// What was noted of a row; nothing if there is no such row.
    async fn history(&self, id: TaskId) -> Result<Noted, Error>;

    /// Fails unless the rows can be kept: as [`Store::check`](super::Store::check).
    async fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until another process has said that rows were written: as [`Store::notified`](super::Store::notified).
    async fn notified(&self) {
        std::future::pending().await
    }
}

/// How much of a row is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// All of it.
    All,
    /// All but the payload and the headers, which are empty then.
    Lean,
}

/// A row as it is read without what is long.
pub(super) fn lean(row: &Task) -> Task {
    Task {
        id: row.id,
        kind: row.kind.clone(),
        key: row.key.clone(),
        payload: Vec::new(),
        headers: Default::default(),
        owner: row.owner.clone(),
        last_error: row.last_error.clone(),
        ..*row
    }
}

/// Rows that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Those that can be read.
    pub rows: Vec<Task>,
    /// The others.
    pub unreadable: Vec<Unreadable>,
}

impl Found {
    /// Rows that all can be read.
    pub(super) fn of(rows: Vec<Task>) -> Self {
        let unreadable = Vec::new();
        Self { rows, unreadable }
    }

    /// These, and more behind them.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.rows.extend(more.rows);
        self.unreadable.extend(more.unreadable);
        self
    }
}

/// A row that this release cannot decode: it was edited by hand, or written by a later release. Also one that was asked for
/// by its id or key of a server that does not answer, where a table has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// By what its table finds it again.
    pub row: Vec<u8>,
    /// Its id, if that can be read.
    pub id: Option<TaskId>,
    /// The kind and key by which it was asked for, if it was.
    pub key: Option<(Kind, Key)>,
    /// Whether it is scheduled or running, as far as that can be read.
    pub is_live: bool,
    /// What is wrong with it.
    pub why: String,
    /// What has to change before it can be read.
    pub fault: Fault,
}

/// What is at fault when a row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What is written in the row: a person has to repair or remove it.
    Row,
    /// What keeps the row, as it does not answer or refuses to: the row may be as it should.
    Server {
        /// Whether that may end by itself, as in [`Error::Store`].
        transient: bool,
    },
}

/// Which rows are to be claimed, of those that are scheduled and due.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// Those of the kinds that the claim has room for, the longest due first.
    Due,
    /// These, each if it is of this version, in this order.
    These(&'a [(TaskId, u64)]),
}

/// By which of its times rows are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `due_at`, then the id.
    Due,
    /// `wake_at`; rows that have none are not in this order.
    Wake,
}

/// Where a range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first row.
    First,
    /// With what is of this long ago, or later.
    Ago(Duration),
    /// After this time and id: by due time only, and never backwards.
    After(Timestamp, TaskId),
}

/// Rows of one state in the order of one of their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// By which time.
    pub by: By,
    /// In which state.
    pub state: State,
    /// Of this kind; none: of each kind in turn, up to the limit each.
    pub kind: Option<Kind>,
    /// From where on.
    pub from: Start,
    /// Up to which time from now, that included; none: to the end.
    pub within: Option<Duration>,
    /// Whether the last come first.
    pub backwards: bool,
    /// How many at the most.
    pub limit: usize,
    /// How many bytes of payloads at the most: a row is in it only while those before it have fewer in all.
    pub bytes: usize,
}

impl Range {
    /// Rows in a state whose `wake_at` has passed, of every kind, the longest ago first.
    pub(super) fn overdue(state: State, limit: usize) -> Self {
        Self {
            by: By::Wake,
            state,
            kind: None,
            from: Start::First,
            within: Some(Duration::ZERO),
            backwards: false,
            limit,
            bytes: usize::MAX,
        }
    }

    /// What a claim of due rows looks at: a range for each kind that it has room for.
    pub(super) fn due(claim: &Claim) -> impl Iterator<Item = Self> {
        let has_room = |(_, room): &(&Kind, &usize)| **room > 0 && claim.bytes > 0;
        claim.room.iter().filter(has_room).map(|(kind, &limit)| Self {
            by: By::Due,
            kind: Some(kind.clone()),
            bytes: claim.bytes,
            ..Self::overdue(State::Scheduled, limit)
        })
    }
}

/// What has become of a row, and what it must still be like for that to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What it was, without payload and headers: it must still be of that version. Its `wake_at`, `started` and `updated_at` may
    /// have changed since, as a renewal of its lease makes no new version.
    pub before: Task,
    /// Whether it must still have that `wake_at` as well: renewals of leases and sweeps change it, and make no new version.
    pub guards_wake: bool,
    /// What it becomes. Its id, kind, key and `created_at` are as they were.
    pub row: Task,
    /// Whether its payload, headers and `max_attempts` are new as well; else they are not written, and may be absent here.
    pub refill: bool,
    /// What is added to what was noted of it.
    pub noted: Noted,
}

impl Write {
    /// The `wake_at` that the row must have, where that matters.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.before.wake_at.filter(|_| self.guards_wake)
    }
}

/// What came of a row that was to be written.
#[derive(Debug)]
pub enum Outcome {
    /// It is written.
    Written,
    /// It is not, since others were quicker: it is of another version, gone, or there already.
    Lost,
    /// It is not, since another transaction has it locked, or its id or key.
    Locked,
    /// It is not known to be: the database refuses it, or its answer to a part of the call was lost.
    Refused(Error),
}

impl Outcome {
    /// Written, or else lost.
    pub(super) fn of(is_written: bool) -> Self {
        if is_written { Self::Written } else { Self::Lost }
    }

    /// Whether the row is written.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written)
    }
}

impl NewRow {
    /// The row that it is when it is written at `now`, and what is noted of that.
    pub fn row(&self, now: Timestamp) -> (Task, Noted) {
        let row = super::rules::new(self.clone(), now);
        let mut noted = Noted::default();
        noted.add(&self.note, &row, now, None);
        (row, noted)
    }
}
