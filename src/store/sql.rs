//! What the SQL stores have in common: a table by statements that all databases have; and how those that have no engine yet
//! decide on new rows and changes of rows.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod batches;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod change;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod clip;
pub(super) mod codec;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
#[cfg(feature = "sqlite")]
mod dialect;
#[cfg(all(test, any(feature = "postgres", feature = "mysql")))]
mod each;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod ensure;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod insert;
#[cfg(feature = "sqlite")]
mod keep;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod loaded;
#[cfg(feature = "mysql")]
mod look;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod obstacle;
mod parts;
#[cfg(feature = "sqlite")]
mod record;
#[cfg(feature = "postgres")]
mod rounds;
#[cfg(feature = "postgres")]
mod scheduled;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod session;
#[cfg(feature = "sqlite")]
mod statements;
#[cfg(feature = "sqlite")]
mod value;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod verbs;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::batches::{STATEMENT, batches, size};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::change::change;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::clip::clip;
#[cfg(feature = "postgres")]
pub(super) use self::connections::{Away, LIVES_FOR};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::connections::{Connections, Dial, Lent};
#[cfg(feature = "sqlite")]
pub(super) use self::dialect::Dialect;
#[cfg(all(test, any(feature = "postgres", feature = "mysql")))]
pub(super) use self::each::Each;
#[cfg(feature = "mysql")]
pub(super) use self::ensure::ensure;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::insert::insert;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::insert::{all, insert_at_once};
#[cfg(feature = "sqlite")]
pub(super) use self::keep::Keep;
#[cfg(feature = "mysql")]
pub(super) use self::look::Look;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::obstacle::{Obstacle, Why};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::parts::by_parts;
#[cfg(feature = "postgres")]
pub(super) use self::rounds::rounds;
#[cfg(feature = "postgres")]
pub(super) use self::scheduled::{left, of_scheduled, with_rest};
#[cfg(feature = "mysql")]
pub(super) use self::session::Before;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::session::{Changed, Held, Lock, Session};
#[cfg(feature = "sqlite")]
pub(super) use self::value::{Cells, Driver, Value};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::verbs::{Answers, LOCK_WAIT, Locked, TURN_WAIT, Verbs, WAITING};
