//! Rows because of which a statement failed.

use crate::Error;
use crate::store::NewRow;
use crate::store::table::Outcome;

use super::batches::size;

/// Why a statement failed because of a row.
#[derive(Clone, Debug)]
pub(in crate::store) enum RowError {
    /// Another row has its id, or its key.
    Taken,
    /// Another transaction has it locked, or its id or key.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    Locked,
    /// The database refuses it.
    Refused(String),
    /// It has a value that no such database can keep.
    Invalid {
        field: &'static str,
        value: String,
        allowed: String,
    },
}

impl RowError {
    /// What came of such a row.
    pub(in crate::store) fn outcome(self, store: &'static str) -> Outcome {
        match self {
            Self::Taken => Outcome::Lost,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            Self::Locked => Outcome::Locked,
            Self::Invalid {
                field,
                value,
                allowed,
            } => Outcome::Refused(Error::Invalid {
                field,
                value,
                allowed,
            }),
            Self::Refused(why) => Outcome::Refused(Error::Store {
                store,
                transient: false,
                source: format!("the row is refused: {why}").into(),
            }),
        }
    }
}

/// How much a statement may carry.
pub(in crate::store) struct Limits {
    /// How many bytes of values, unless a single row is longer.
    pub(in crate::store) budget: usize,
    /// How many bytes a single row may have, and what allows no more.
    pub(in crate::store) longest: usize,
    pub(in crate::store) by: &'static str,
}

impl Limits {
    /// Why a row of so many bytes cannot be kept, if it is too long.
    pub(in crate::store) fn refuses_bytes(&self, bytes: usize) -> Option<RowError> {
        let Self { longest, by, .. } = self;
        (bytes > *longest).then(|| RowError::Invalid {
            field: "payload",
            value: format!("{bytes} bytes long"),
            allowed: format!("with what goes beside it, at most {longest} bytes are allowed by {by}"),
        })
    }

    /// Why a new row cannot be kept, if it is too long.
    pub(in crate::store) fn refuses(&self, row: &NewRow) -> Option<RowError> {
        self.refuses_bytes(size(row))
    }
}
