//! The one error type of the crate.

use std::fmt::Display;

use crate::TaskId;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a call did not succeed.
///
/// An answer such as "too late, it is running" is not an error: see [`Answer`](crate::Answer).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or a setting that cannot be used; nothing was done.
    #[error("{field} is {value:?}: {allowed}")]
    Invalid {
        /// The argument or setting.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The payload of a task could not be encoded; nothing was done.
    #[error("the payload of a {kind:?} task cannot be encoded: {source}")]
    Encode {
        /// The kind of the task.
        kind: String,
        /// What the encoder said.
        source: serde_json::Error,
    },
    /// The store failed. Unless it says otherwise, whether the statement took effect is not known.
    #[error("store {store}: {source}")]
    Store {
        /// Which store.
        store: &'static str,
        /// Whether the same call may succeed later.
        transient: bool,
        /// What the driver said.
        source: Cause,
    },
    /// A backend failed. No task is lost by it: the rows are in the store.
    #[error("backend {backend}: {source}")]
    Backend {
        /// Which backend.
        backend: &'static str,
        /// Whether the same call may succeed later.
        transient: bool,
        /// What the client said.
        source: Cause,
    },
    /// The claim of a task was lost before its handler finished it in a transaction: roll that back, as another worker
    /// may have the task now.
    #[error("the claim of task {id} was lost; nothing of its transaction may be committed")]
    ClaimLost {
        /// The task.
        id: TaskId,
    },
    /// A part of the worker ended by a defect of this crate; the worker has stopped, its leases end by themselves.
    #[error("the worker ended: {source}")]
    Worker {
        /// How it ended.
        source: Cause,
    },
}

impl Error {
    /// Whether the same call may succeed when it is repeated later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store { transient, .. } | Self::Backend { transient, .. } => *transient,
            Self::Invalid { .. } | Self::Encode { .. } | Self::ClaimLost { .. } | Self::Worker { .. } => {
                false
            }
        }
    }

    pub(crate) fn invalid(field: &'static str, value: impl Display, allowed: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }
}
