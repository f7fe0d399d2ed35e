//! Values, into a statement and out of a row, and who carries them.

use async_trait::async_trait;

/// A value of a statement, or of a column.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// One of another type, which no column of ours has.
    Odd,
}

impl Value {
    pub(super) fn of_time(time: Option<crate::Timestamp>) -> Self {
        time.map_or(Self::Null, |time| Self::Int(time.as_millis()))
    }

    pub(super) fn of_text(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Int(super::codec::limit(count))
    }
}

/// A row of an answer.
pub(in crate::store) type Cells = Vec<Value>;

/// A connection on which statements are sent.
#[async_trait]
pub(in crate::store) trait Driver: Send {
    /// Sends a statement with its values in their order; gives its rows.
    async fn fetch(&mut self, sql: String, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error>;

    /// Whether a statement failed since a row that it was to write would be a second one of its id, or a second live one of
    /// its key.
    fn is_taken(error: &sqlx::Error) -> bool;
}
