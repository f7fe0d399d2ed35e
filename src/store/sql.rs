//! What the SQL stores have in common: how new rows and changes of rows are decided.

mod change;
mod ensure;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod held;
mod insert;
mod loaded;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod look;
mod session;

pub(super) use self::change::change;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::ensure::ensure;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::held::{end, hop};
pub(super) use self::insert::Insert;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::look::Look;
pub(super) use self::session::{Changed, Session};
