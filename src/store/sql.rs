//! What the SQL stores have in common: a table by statements that all databases have; and how those that have no engine yet
//! decide on new rows and changes of rows.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod batches;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod blame;
#[cfg(feature = "mysql")]
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
#[cfg(feature = "mysql")]
mod ensure;
#[cfg(all(test, any(feature = "sqlite", feature = "postgres")))]
mod forms;
#[cfg(feature = "mysql")]
mod insert;
#[cfg(feature = "sqlite")]
mod keep;
#[cfg(feature = "mysql")]
mod loaded;
#[cfg(feature = "mysql")]
mod look;
#[cfg(feature = "mysql")]
mod obstacle;
mod parts;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod record;
#[cfg(feature = "mysql")]
mod session;
#[cfg(feature = "sqlite")]
mod statements;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod value;
#[cfg(feature = "mysql")]
mod verbs;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::batches::{STATEMENT, batches, size};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) use self::blame::Blame;
#[cfg(feature = "mysql")]
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
#[cfg(all(test, any(feature = "sqlite", feature = "postgres")))]
pub(super) use self::forms::ranges;
#[cfg(feature = "mysql")]
pub(super) use self::insert::{all, insert, insert_at_once};
#[cfg(feature = "sqlite")]
pub(super) use self::keep::Keep;
#[cfg(feature = "mysql")]
pub(super) use self::look::Look;
#[cfg(feature = "mysql")]
pub(super) use self::obstacle::{Obstacle, Why};
pub(super) use self::parts::by_parts;
#[cfg(feature = "postgres")]
pub(super) use self::record::found;
#[cfg(feature = "mysql")]
pub(super) use self::session::{Before, Changed, Held, Lock, Session};
#[cfg(feature = "sqlite")]
pub(super) use self::value::Driver;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) use self::value::{Cells, Value};
#[cfg(feature = "mysql")]
pub(super) use self::verbs::{Answers, LOCK_WAIT, Locked, TURN_WAIT, Verbs, WAITING};
