//! Values as MySQL has them, and back.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{MySql, Row, TypeInfo, ValueRef};

use crate::store::sql::codec::{Hex, json};
use crate::store::sql::{Cells, Value};
use crate::{TaskId, Timestamp};

/// A statement with its values.
pub(super) type Query<'q> = sqlx::query::Query<'q, MySql, MySqlArguments>;

/// How many columns of an answer are a row's.
const COLUMNS: usize = 20;
/// The columns behind these: how long its payload is, and the time when it was read.
pub(super) const SIZE: usize = COLUMNS;
pub(super) const NOW: usize = COLUMNS + 1;
/// The column of the number of what it was asked for by, where there is one.
pub(super) const NUMBER: usize = COLUMNS + 2;
/// Those of texts, whether the server calls them so or bytes: kind, key, owner, error and headers.
const TEXTS: [usize; 5] = [1, 2, 16, 17, 18];

/// The columns of a row.
pub(super) fn cells(row: &MySqlRow) -> Result<Cells, sqlx::Error> {
    let cell = |column| {
        let raw = row.try_get_raw(column)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        Ok(match raw.type_info().name() {
            "BIGINT" | "INT" | "TINYINT" | "BOOLEAN" => Value::Int(row.try_get_unchecked(column)?),
            "BIGINT UNSIGNED" | "INT UNSIGNED" | "TINYINT UNSIGNED" => {
                let number: u64 = row.try_get_unchecked(column)?;
                i64::try_from(number).map_or(Value::Odd, Value::Int)
            }
            "BINARY" | "VARBINARY" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "CHAR" | "VARCHAR" | "TEXT"
            | "MEDIUMTEXT" | "LONGTEXT" => bytes(column, row.try_get_unchecked(column)?),
            _ => Value::Odd,
        })
    };
    (0..COLUMNS).map(cell).collect()
}

/// Bytes, or the text that they are in a column of texts. What is none is somebody's who has written it by hand.
fn bytes(column: usize, bytes: Vec<u8>) -> Value {
    if !TEXTS.contains(&column) {
        return Value::Bytes(bytes);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Value::Text(text),
        Err(other) => Value::Bytes(other.into_bytes()),
    }
}

/// The id in a column, if it is one.
pub(super) fn id(row: &MySqlRow, column: usize) -> Result<Option<TaskId>, sqlx::Error> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.map(TaskId::from_bytes))
}

/// The time in a column.
pub(super) fn time(row: &MySqlRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    row.try_get(column).map(Timestamp::from_millis)
}

/// A kind or key within JSON.
pub(super) struct HexText<'a>(pub(super) &'a str);

impl Serialize for HexText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(self.0.as_bytes()))
    }
}

/// The digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]);
    digits.collect()
}

/// Ids as a JSON array, in their order, so that all lock rows in the same one.
pub(super) fn ids(ids: impl IntoIterator<Item = TaskId>) -> Result<String, sqlx::Error> {
    let ids: BTreeSet<_> = ids.into_iter().collect();
    json(&ids.into_iter().map(Hex).collect::<Vec<_>>())
}
