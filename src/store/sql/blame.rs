//! Rows that a statement failed of.

use crate::Error;
use crate::store::table::Outcome;

/// Why a statement failed because of a row.
#[derive(Clone, Debug)]
pub(in crate::store) enum Blame {
    /// Another row has its id, or its key.
    Taken,
    /// Another transaction has it locked, or its id or key.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    Locked,
    /// The database refuses it.
    Refused(String),
    /// It has a value that no such database can keep.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    Invalid {
        field: &'static str,
        value: String,
        allowed: String,
    },
}

impl Blame {
    /// What came of such a row.
    pub(in crate::store) fn outcome(self, store: &'static str) -> Outcome {
        match self {
            Self::Taken => Outcome::Lost,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            Self::Locked => Outcome::Locked,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
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
