//! What columns of all SQL stores have in common.

use std::collections::BTreeMap;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

#[cfg(any(feature = "sqlite", feature = "mysql"))]
use serde::{Serialize, Serializer};

#[cfg(any(feature = "sqlite", feature = "mysql"))]
use crate::TaskId;

/// What is wrong with a row that this crate cannot have written.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum Corrupt {
    #[error("column {0} has the value {1}")]
    Value(&'static str, i64),
    #[error("column {0} has a value of another type")]
    Type(&'static str),
    #[error("column id is not 16 bytes long")]
    Id,
    #[error("column headers: {0}")]
    Headers(serde_json::Error),
}

impl From<Corrupt> for sqlx::Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Decode(corrupt.into())
    }
}

/// A count as a limit has it.
pub(in crate::store) fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A span in milliseconds, no longer than all time, so that a time and a span can be added.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn span(span: Duration) -> i64 {
    crate::task::timestamp::millis(span).min(crate::Timestamp::MAX.as_millis())
}

/// The digits of bytes.
pub(in crate::store) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]);
    digits.collect()
}

/// Headers as a column has them.
pub(in crate::store) fn headers(headers: &BTreeMap<String, String>) -> Result<String, sqlx::Error> {
    serde_json::to_string(headers).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// The headers of a column.
pub(in crate::store) fn read_headers(headers: &str) -> Result<BTreeMap<String, String>, Corrupt> {
    match headers {
        "{}" => Ok(BTreeMap::new()),
        headers => serde_json::from_str(headers).map_err(Corrupt::Headers),
    }
}

/// Values as JSON, for a statement's parameter.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(in crate::store) fn json<T: Serialize + ?Sized>(values: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(values).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// An id within JSON.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(in crate::store) struct Hex(pub(in crate::store) TaskId);

#[cfg(any(feature = "sqlite", feature = "mysql"))]
impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = uuid::Uuid::encode_buffer();
        let id = uuid::Uuid::from_bytes(*self.0.as_bytes()).simple();
        serializer.serialize_str(id.encode_lower(&mut digits))
    }
}
