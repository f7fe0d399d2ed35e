//! Values, into a statement and out of a row, and the drivers that carry them.

#[cfg(any(feature = "sqlite", feature = "mysql"))]
use async_trait::async_trait;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
use sqlx::SqlStr;

use crate::{TaskId, Timestamp};

/// A value of a statement, or of a column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// An id, and several, as the database has them.
    Id(TaskId),
    Ids(Vec<TaskId>),
    /// A column of a batch, where a database has such values.
    #[cfg(feature = "postgres")]
    Ints(Vec<Option<i64>>),
    #[cfg(feature = "postgres")]
    Texts(Vec<Option<String>>),
    #[cfg(feature = "postgres")]
    Blobs(Vec<Option<Vec<u8>>>),
    /// One of another type, which no column of ours has.
    Odd,
}

impl Value {
    pub(in crate::store) fn of_time(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Null, |time| Self::Int(time.as_millis()))
    }

    pub(in crate::store) fn of_int(int: Option<impl Into<i64>>) -> Self {
        int.map_or(Self::Null, |int| Self::Int(int.into()))
    }

    pub(in crate::store) fn of_text(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }

    /// A version: no row has one that is no number there.
    pub(in crate::store) fn version(version: u64) -> Self {
        Self::Int(i64::try_from(version).unwrap_or(-1))
    }

    pub(in crate::store) fn count(count: usize) -> Self {
        Self::Int(super::codec::limit(count))
    }
}

/// Within JSON bytes are hex digits.
#[cfg(feature = "mysql")]
impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(int) => serializer.serialize_i64(*int),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_str(&super::codec::hex(bytes)),
            _ => serializer.serialize_none(),
        }
    }
}

/// A row of an answer.
pub(in crate::store) type Cells = Vec<Value>;

/// A connection on which statements are sent.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
#[async_trait]
pub(in crate::store) trait Driver: Send {
    /// Sends a statement with its values in their order; gives its rows.
    async fn fetch(&mut self, sql: SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error>;
}
