//! What the SQL stores have in common, and the statements of those that name their indexes.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod batches;
mod blame;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod clip;
pub(super) mod codec;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
#[cfg(feature = "sqlite")]
mod dialect;
#[cfg(all(test, any(feature = "postgres", feature = "mysql")))]
mod each;
#[cfg(test)]
mod forms;
#[cfg(feature = "sqlite")]
mod keep;
#[cfg(test)]
pub(super) mod lived;
mod parts;
mod record;
#[cfg(feature = "sqlite")]
mod statements;
mod value;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::batches::{STATEMENT, batches, size};
pub(super) use self::blame::Blame;
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
#[cfg(test)]
pub(super) use self::forms::ranges;
#[cfg(feature = "sqlite")]
pub(super) use self::keep::Keep;
pub(super) use self::parts::by_parts;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::record::found;
#[cfg(feature = "sqlite")]
pub(super) use self::value::Driver;
pub(super) use self::value::{Cells, Value};
