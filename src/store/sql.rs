//! What the SQL stores have in common: how new rows and changes of rows are decided.

mod change;
mod insert;
mod loaded;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
mod look;
mod session;

pub(super) use self::change::change;
pub(super) use self::insert::Insert;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::look::Look;
pub(super) use self::session::{Changed, Session};
