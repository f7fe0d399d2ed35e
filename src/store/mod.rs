//! Keeps the rows: the trait, and what goes through it.
//!
//! A user of the [`Scheduler`](crate::Scheduler) takes from here a store such as [`MemoryStore`], a [`Page`] to list, an
//! [`Expect`] for the verbs that end in `_if`, and a [`Target`], [`Action`] or [`When`] for those that take many tasks.

pub(crate) mod batched_calls;
pub(crate) mod coalescer;
#[cfg(all(test, any(feature = "postgres", feature = "mysql")))]
#[path = "../../tests/support/database.rs"]
mod database;
mod delegated;
mod engine;
pub(crate) mod fnv;
mod keep;
mod limited;
pub(crate) mod line;
mod memory;
mod merging;
#[cfg(feature = "mysql")]
mod mysql;
mod noted;
pub(crate) mod paused;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(all(test, any(feature = "postgres", feature = "mysql", feature = "redis")))]
#[path = "../../tests/support/proxy.rs"]
mod proxy;
pub(crate) mod receipt;
#[cfg(feature = "redis")]
mod redis;
mod requests;
mod rows;
mod rules;
pub(crate) mod shard_hash;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "redis"
))]
mod state_code;
mod step;
pub(crate) mod store_time;
pub mod table;
mod transaction;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::engine::Engine;
pub use self::keep::{Histories, Keep};
pub(crate) use self::limited::{Limited, unanswered};
pub use self::memory::MemoryStore;
#[cfg(feature = "mysql")]
pub use self::mysql::{MySqlBuilder, MySqlStore};
pub use self::noted::{History, Note, Noted};
pub use self::paused::Paused;
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresBuilder, PostgresStore};
pub use self::receipt::Receipt;
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
pub use self::requests::{Ahead, Claim, Guarded, Pending, PollResult, Renewal, Sweep};
pub(crate) use self::rules::ended;
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteBuilder, SqliteStore};
pub use self::step::{Ending, Event, Step};
pub use self::transaction::Transaction;
pub use crate::task::page::Page;
pub use crate::task::target::{Action, Expect, Target};
use crate::task::wake::Wake;
pub use crate::task::when::When;
use crate::{Answer, Error, Key, Kind, Scheduled, State, Task, TaskId, Timestamp};

/// Keeps the rows, and moves each from state to state, guarded by its version.
///
/// Every transition of a row is atomic, adds 1 to its version (a renewal alone does not), and is durable when the
/// call returns. A store decides by its own clock, read in the statement itself. A batch may be split into several
/// transactions between its rows, never within one row. All transitions are in `DESIGN.md`.
///
/// Every call ends: one whose server does not answer within [`defaults::STORE_TIMEOUT`](crate::defaults::STORE_TIMEOUT) fails, with an error that is
/// transient, and what it spoke through is closed and not used again. A row that another transaction has locked, or that
/// cannot be read, holds up no other: each row of a batch has an answer of its own.
/// The conformance suite in `delayline::testing` (feature `testing`) holds an implementation to this page. For another
/// database none need be written: an [`Engine`] makes it of a [`Table`](table::Table).
#[diagnostic::on_unimplemented(
    note = "`Scheduler::new` takes a store, and `Scheduler::builder` takes it in an `Arc`"
)]
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// A short name for logs and errors, such as `sqlite`.
    fn name(&self) -> &'static str;

    /// The time by the store's own clock.
    async fn now(&self) -> Result<Timestamp, Error>;

    /// Writes new rows, state scheduled, version 1, in the order given; one answer each, in that order.
    ///
    /// - A row of the same id, in whatever state, is left as it is: `Existing`. So a call may be repeated.
    /// - Else, a live row of the same kind and key: `Running` if it runs; `Existing`, or with
    ///   [`NewRow::replace`] the row takes the new time, payload, headers and `max_attempts`, starts its attempts,
    ///   hops and error anew: `Replaced`.
    /// - Else `New`.
    ///
    /// A claim whose lease has ended is no claim: it is ended first, as by [`sweep`](Self::sweep), and so its row is
    /// scheduled. The same for [`change`](Self::change).
    ///
    /// After an error of the call it is not known of any row whether it is written. After an error of one row the row may be
    /// written, too, where an answer was lost. A row that another transaction keeps locked gets an error that is transient,
    /// after a short wait, and is not written.
    ///
    /// A store in which a commit costs more than a row brings the calls of concurrent callers together, so that they share
    /// commits; a call that means a row which is locked holds up no other caller then. The same for [`change`](Self::change).
    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error>;

    /// Changes rows for their callers; one answer each, in the order given.
    ///
    /// A target by key means its live row, else the newest: by the time at which it was written, then by id. The verbs
    /// of [`Verb`] apply to a row that is scheduled (redrive and dismiss: dead). Otherwise: running gives `TooLate`,
    /// done, dead and cancelled give `Finished` (redrive and dismiss of a live row give `Conflict`; so does redrive of a
    /// row whose key another live row has, naming that one), no row gives `NotFound`, and a row that is not as
    /// [`Change::expect`] says gives `Conflict`. Its state answers before the expectation does. Errors are as those of
    /// [`insert`](Self::insert).
    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error>;

    /// Looks at the rows that wake-ups name, at most one wake-up per id, and claims those that are due.
    ///
    /// A wake-up whose version is not the row's, or whose row is not scheduled, is stale. Of the rest, rows due
    /// later are early; rows due now are claimed as far as the claim has room for their kind and for their payloads, and
    /// else are waiting, unchanged. A row that another transaction has locked is none of these, and left to the sweep.
    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error>;

    /// Claims due rows, the longest due first, as far as the claim has room for their kind and for their payloads,
    /// whatever their `wake_at`.
    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error>;

    /// Takes rows whose `wake_at` has passed, however long ago, up to `sweep.limit` of each kind and state.
    ///
    /// - Running: the lease has ended; the row is scheduled again, due as before, one stall more, and is looked at at
    ///   once. Unless its handler was said to have started ([`Renewal::started`]), its attempt is given back.
    /// - Scheduled and due: claimed as far as the claim has room for its kind; else waiting, and left as it is for
    ///   a claimer that has room.
    /// - Scheduled and not due, of whatever kind: early; its `wake_at` moves on by `sweep.retake`, so that of many
    ///   workers one at a time has it. Its version stays: the hop that follows adds to it.
    ///
    /// Where `sweep.ahead` says so it looks ahead as well, so that an idle worker needs one call for both: at the
    /// scheduled rows that become due up to `ahead.within` from now, the earliest due first; and at those that have
    /// become due within the last [`Ahead::SINCE`], whose wake-ups are not overdue yet. What was due before is found by
    /// `ready` and the sweep. A row that another transaction has locked is left to the next sweep.
    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error>;

    /// Takes steps, each if its row is still of that version and in the state that its [`Event`] needs; says of each, in
    /// the order given, what came of it.
    ///
    /// The steps may be of many callers, and an error of the call is told to all of them, also a permanent one. So a row that
    /// cannot be written is no error where there are others, but [`Guarded::Blocked`]. The same for [`renew`](Self::renew).
    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error>;

    /// Moves the end of leases to `lease` from now, each if the row is still running and of that version, also where it
    /// has ended and no other claim has the row; and notes which handlers start. Says of each what came of it.
    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error>;

    /// The row of a target; by key its live row, else the newest, as in [`change`](Self::change).
    async fn find(&self, target: &Target) -> Result<Option<Task>, Error>;

    /// A page of rows of one kind and one state, by due time and id. What cannot be read is left out, but for a row of
    /// [`Paused::KIND`], which is an error, and a transient one: a pause must not be missed.
    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error>;

    /// The kinds of which there are rows in a state, in their order by bytes: up to `limit` after one of them.
    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error>;

    /// How many rows of a kind and a state are due within each of these spans from now, in the order given; what is overdue
    /// is due within every span. Each is counted by an index, and up to `most`, which stands for that many or more.
    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error>;

    /// What has been noted of a row by [`NewRow::note`], [`Change::note`], [`Step::note`] and [`Claim::history`], each in the
    /// transaction of its transition; nothing if there is no such row. Also the ends of leases that such a
    /// call came across.
    async fn history(&self, id: TaskId) -> Result<Noted, Error>;

    /// Removes up to `limit` done, cancelled or dead rows of each kind whose `wake_at` has passed; says how many.
    ///
    /// Also mends leases that were given while the store's clock was ahead: a running row that was last updated in the
    /// future has a lease of the same length from now, and was updated now. Up to `limit` of each kind, those first whose
    /// leases end last.
    async fn purge(&self, limit: usize) -> Result<u64, Error>;

    /// For how long rows of these kinds stay that end from now on, in the place of what was said before. Of other
    /// kinds as the store does by itself: dead ones until an operator acts.
    fn keep(&self, kinds: &Arc<BTreeMap<Kind, Keep>>);

    /// Fails unless the rows can be kept: the schema is there, and is one that this release knows. A worker asks
    /// before it starts.
    async fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until another process has said that rows were scheduled which are due soon. Never ends where no
    /// process says so.
    ///
    /// What was said while no call waited ends the next one at once; a call that is dropped loses nothing.
    async fn notified(&self) {
        std::future::pending().await
    }
}

/// What a store found, and the time by its clock when it looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped<T> {
    /// The time by the store's clock.
    pub now: Timestamp,
    /// What it found.
    pub found: T,
}

/// A row to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// The id.
    pub id: TaskId,
    /// The kind.
    pub kind: Kind,
    /// The caller's own name, if any.
    pub key: Option<Key>,
    /// What the handler is given.
    pub payload: Vec<u8>,
    /// What travels beside it.
    pub headers: BTreeMap<String, String>,
    /// `due_at` and `planned_at`; a duration counts from now by the store's clock.
    pub due: When,
    /// When its first wake-up will be overdue: `wake_at` is this long after now by the store's clock.
    pub overdue_after: Duration,
    /// The row's own limit of attempts, if any.
    pub max_attempts: Option<u32>,
    /// Whether a scheduled row of the same kind and key is replaced.
    pub replace: bool,
    /// What is noted if it is written.
    pub note: Note,
}

impl NewRow {
    /// How many bytes it adds to a call.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.payload.len() + headers.sum::<usize>()
    }
}

/// A change of a row by its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which row.
    pub target: Target,
    /// What to do with it.
    pub verb: Verb,
    /// What the row must be like.
    pub expect: Expect,
    /// What is noted if it is changed.
    pub note: Note,
}

/// What a caller may do with a row that is there. A store has to know all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A new `due_at` and `planned_at`; a duration counts from now by the store's clock. Attempts, hops and error
    /// start anew.
    Reschedule {
        /// The new time.
        due: When,
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
    },
    /// Due now: `due_at` and `planned_at` are now. Attempts, hops and error start anew.
    RunNow {
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
    },
    /// Cancelled; kept as long as the store keeps history.
    Cancel,
    /// From dead to cancelled: given up for good.
    Dismiss,
    /// From dead to scheduled, due now, as by [`Verb::RunNow`].
    Redrive {
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
    },
    /// Another payload; headers and limit of attempts stay. With a time it is moved as well, as by [`Verb::Reschedule`];
    /// else due time, attempts, hops, stalls and error stay, too.
    Edit {
        /// The new payload.
        payload: Vec<u8>,
        /// The new time, if there is one.
        due: Option<When>,
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
    },
}

impl Verb {
    /// How many bytes it adds to a call.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Edit { payload, .. } => payload.len(),
            _ => 0,
        }
    }
}

/// The one answer of a call for one row.
pub(crate) fn only<T>(answers: Vec<T>) -> Result<T, Error> {
    answers.into_iter().next().ok_or_else(|| Error::Store {
        store: "custom",
        transient: false,
        source: "the store gave no answer for a row".into(),
    })
}
