//! What the SQL stores have in common: how new rows and changes of rows are decided.

mod change;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
mod ensure;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod held;
mod insert;
mod loaded;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod look;
mod obstacle;
mod parts;
mod session;

pub(super) use self::change::change;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::connections::{Away, Connections, Dial, Lent};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::ensure::ensure;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::held::{end, hop};
pub(super) use self::insert::{Insert, insert};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::look::Look;
pub(super) use self::obstacle::{Obstacle, Why};
pub(super) use self::parts::parts;
pub(super) use self::session::{Changed, Held, Session};
