//! What the SQL stores have in common.

mod batches;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod builder;
mod clip;
pub(super) mod codec;
mod connections;
mod errors;
mod parts;
mod record;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod schema;
mod table;
mod value;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::batches::{STATEMENT, batches};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::builder::{check_connections, check_name};
#[cfg(feature = "mysql")]
pub(super) use self::clip::clip;
#[cfg(feature = "sqlite")]
pub(super) use self::connections::Lent;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::connections::Pools;
#[cfg(feature = "postgres")]
pub(super) use self::connections::{Away, LIVES_FOR};
pub(super) use self::connections::{Connections, Dial};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::errors::Limits;
pub(super) use self::errors::RowError;
#[cfg(feature = "mysql")]
pub(super) use self::record::number_of;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) use self::record::{BECOMES, id};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::record::{BEHIND_NOW, NUMBERS, counted, of_ranges, time_of};
#[cfg(feature = "sqlite")]
pub(super) use self::record::{COLUMNS, time};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::record::{NEW, new_values};
pub(super) use self::record::{RowsRead, written_values};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::schema::{Made, Unfit};
#[cfg(feature = "mysql")]
pub(super) use self::table::read_by;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use self::table::written_size;
pub(super) use self::table::{Answered, Query, Session, SqlTable};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) use self::value::Driver;
pub(super) use self::value::{Cells, Value};

#[cfg(test)]
pub(super) mod tests;
