//! What the SQL stores have in common: how new rows and changes of rows are decided.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod batches;
mod change;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod clip;
pub(super) mod codec;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
#[cfg(all(test, any(feature = "postgres", feature = "mysql")))]
mod each;
mod ensure;
mod insert;
mod loaded;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod look;
mod obstacle;
mod parts;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod rounds;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod scheduled;
mod session;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod verbs;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::batches::{STATEMENT, batches, size};
pub(super) use self::change::change;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::clip::clip;
#[cfg(feature = "postgres")]
pub(super) use self::connections::{Away, LIVES_FOR};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::connections::{Connections, Dial, Lent};
#[cfg(all(test, any(feature = "postgres", feature = "mysql")))]
pub(super) use self::each::Each;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::ensure::ensure;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::insert::insert;
pub(super) use self::insert::{all, insert_at_once};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::look::Look;
pub(super) use self::obstacle::{Obstacle, Why};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::parts::by_parts;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) use self::rounds::rounds;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) use self::scheduled::{left, of_scheduled, with_rest};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::session::Before;
pub(super) use self::session::{Changed, Held, Lock, Session};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::verbs::{Answers, LOCK_WAIT, Locked, TURN_WAIT, Verbs, WAITING};
