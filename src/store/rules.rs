//! Decides what happens to a row: the rules, the same for every store. They compute in memory, over rows that were read; the
//! [`engine`](super::engine) writes what comes of them, if each row still is of the version that was read.
//!
//! - `verbs`: may a caller insert a row, or change one, and what is the answer?
//! - `claim`: which due rows does a claim take, and what does it make of one? It names the copies in SQL and Lua.
//! - `lease`: has a lease ended, and what becomes of its row?
//! - `transition`: what does a verb, a hop or the end of a claim make of a row?
//!
//! So a cancel meets a claim like this. If the row is running, the cancel is too late (`verbs`). If it is running and its lease
//! has ended, the claim is ended first, and then the row is cancelled. If it is scheduled, the first of both to write has it, as
//! each write needs the version that was read, and makes a new one (`transition`, `claim`). Then a cancel that comes second
//! reads the row again, and is answered anew; a claim that comes second passes the row over.

mod claim;
mod lease;
mod transition;
mod verbs;

pub(super) use self::claim::Capacity;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(super) use self::lease::NOBODY;
pub(super) use self::lease::lease_has_ended;
pub(super) use self::lease::{expire, mend_lease, renew};
pub(crate) use self::transition::ended;
pub(super) use self::transition::{Transition, new};
