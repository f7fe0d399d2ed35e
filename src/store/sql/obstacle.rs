//! Rows of which nothing can be decided now.

use crate::{Error, Key, Kind, TaskId};

/// A row that is in the way of a verb.
#[derive(Clone, Debug)]
pub(in crate::store) struct Obstacle {
    pub(in crate::store) id: TaskId,
    /// The kind and key by which it was asked for, if it was.
    pub(in crate::store) key: Option<(Kind, Key)>,
    pub(in crate::store) why: Why,
}

/// Why nothing can be decided of a row.
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::store) enum Why {
    /// Somebody else's transaction has it locked, or its key, while it has this version, if that is known: that passes.
    #[error("another transaction has the row locked, or one of its id or key")]
    Locked(Option<u64>),
    /// It makes no sense, or is of a later release.
    #[error("the row cannot be read: {0}")]
    Garbled(String),
    /// The same of the newest row of a key of which none is live: it keeps no new row from that key.
    #[error("the newest row of the key cannot be read: {0}")]
    GarbledPast(String),
    /// The database refuses it.
    #[error("the row is refused: {0}")]
    Refused(String),
    /// It has a value that no such store can keep.
    #[error("{field}: {allowed}")]
    Invalid {
        field: &'static str,
        value: String,
        allowed: String,
    },
}

impl Why {
    /// What the verb's caller is told.
    pub(in crate::store) fn error(self, store: &'static str) -> Error {
        match self {
            Self::Invalid {
                field,
                value,
                allowed,
            } => Error::Invalid {
                field,
                value,
                allowed,
            },
            why => Error::Store {
                store,
                transient: matches!(why, Self::Locked(_)),
                source: why.into(),
            },
        }
    }
}
