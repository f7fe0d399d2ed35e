//! Defines the one error type of the crate.

use std::fmt::{self, Debug, Display};
use std::iter;

use tokio::sync::oneshot;

use crate::TaskId;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a call did not succeed.
///
/// An answer such as "too late, it is running" is not an error: see [`Answer`](crate::Answer).
///
/// `Debug` prints the same as `Display`, with the causes: that is what a `main` that returns it shows.
#[non_exhaustive]
pub enum Error {
    /// An argument or a setting is invalid; nothing was done.
    Invalid {
        /// The argument or setting.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The payload of a task could not be encoded; nothing was done.
    Encode {
        /// The kind of the task.
        kind: String,
        /// The encoder's error.
        source: serde_json::Error,
    },
    /// The store failed. Unless the error says otherwise, it is unknown whether the statement took effect.
    Store {
        /// Which store.
        store: &'static str,
        /// Whether the same call may succeed later.
        transient: bool,
        /// The driver's error.
        source: Cause,
    },
    /// A backend failed. No task is lost: the rows are in the store.
    Backend {
        /// Which backend.
        backend: &'static str,
        /// Whether the same call may succeed later.
        transient: bool,
        /// The client's error.
        source: Cause,
    },
    /// The claim of a task was lost before its handler finished it in a transaction: roll that back, as another worker
    /// may have the task now.
    ClaimLost {
        /// The task.
        id: TaskId,
    },
    /// A part of the worker ended by a defect of this crate; the worker has stopped, and its leases end by themselves.
    Worker {
        /// How it ended.
        source: Cause,
    },
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid {
                field,
                value,
                allowed,
            } => write!(f, "{field} is {value:?}: {allowed}"),
            Self::Encode { kind, source } => {
                write!(f, "the payload of a {kind:?} task cannot be encoded: {source}")
            }
            Self::Store { store, source, .. } => write!(f, "store {store}: {source}"),
            Self::Backend { backend, source, .. } => write!(f, "backend {backend}: {source}"),
            Self::ClaimLost { id } => write!(
                f,
                "the claim of task {id} was lost; nothing of its transaction may be committed"
            ),
            Self::Worker { source } => write!(f, "the worker ended: {source}"),
        }
    }
}

impl Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

impl std::error::Error for Error {
    /// Returns the first cause that adds to the error's own text, which already contains that of a driver's error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause: &(dyn std::error::Error + 'static) = match self {
            Self::Store { source, .. } | Self::Backend { source, .. } | Self::Worker { source } => &**source,
            Self::Encode { source, .. } => source,
            Self::Invalid { .. } | Self::ClaimLost { .. } => return None,
        };
        let said = self.to_string();
        causes(cause).find(|cause| !said.contains(&cause.to_string()))
    }
}

/// Prints an error and its causes in one line, without causes whose text is in it already.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    iter::successors(error.source(), |&cause| cause.source())
}

impl Error {
    /// Says whether the same call may succeed when it is repeated later: a server is away or busy, or another
    /// transaction has locked the row. Whether it took effect is not always known; each verb says how to repeat it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store { transient, .. } | Self::Backend { transient, .. } => *transient,
            Self::Invalid { .. } | Self::Encode { .. } | Self::ClaimLost { .. } | Self::Worker { .. } => {
                false
            }
        }
    }

    /// Names the class of the error, for counting failures.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn sort(&self) -> &'static str {
        match self.is_transient() {
            true => "transient",
            false => "permanent",
        }
    }

    /// Says whether the input is invalid, be it an argument, a setting or a payload: [`Invalid`](Self::Invalid) and
    /// [`Encode`](Self::Encode). Nothing was done, and the same call will never succeed. A service that answers
    /// requests should blame the request, and not itself.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Encode { .. })
    }

    /// Copies the error for another caller of the same call, with its cause as text.
    pub(crate) fn once_more(&self) -> Self {
        match self {
            Self::Invalid {
                field,
                value,
                allowed,
            } => Self::Invalid {
                field,
                value: value.clone(),
                allowed: allowed.clone(),
            },
            Self::Encode { kind, source } => Self::Encode {
                kind: kind.clone(),
                source: serde::ser::Error::custom(source),
            },
            Self::Store {
                store,
                transient,
                source,
            } => Self::Store {
                store,
                transient: *transient,
                source: source.to_string().into(),
            },
            Self::Backend {
                backend,
                transient,
                source,
            } => Self::Backend {
                backend,
                transient: *transient,
                source: source.to_string().into(),
            },
            Self::ClaimLost { id } => Self::ClaimLost { id: *id },
            Self::Worker { source } => Self::Worker {
                source: source.to_string().into(),
            },
        }
    }

    /// Sends the error to every caller that waits for the same call; the last gets the error itself, with all its
    /// causes.
    pub(crate) fn tell_all<T>(self, mut callers: Vec<oneshot::Sender<Result<T, Self>>>) {
        let Some(last) = callers.pop() else { return };
        for caller in callers {
            // A caller that does not wait any more has gone away.
            let _ = caller.send(Err(self.once_more()));
        }
        let _ = last.send(Err(self));
    }

    /// The error for a call that ended without an answer: the runtime ends, or the store panicked.
    pub(crate) fn unanswered(store: &'static str) -> Self {
        Self::defect(store, "the call ended without an answer")
    }

    /// The error for a call that answered for another number of rows than it was given.
    pub(crate) fn miscounted(store: &'static str, answers: usize, rows: usize) -> Self {
        Self::defect(store, format!("{answers} answers for {rows} rows"))
    }

    fn defect(store: &'static str, source: impl Into<Cause>) -> Self {
        Self::Store {
            store,
            transient: false,
            source: source.into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver's error with a cause, whose text, as with many drivers, is in its own text too.
    #[derive(Debug)]
    struct Said(&'static str, Option<Box<Said>>);

    impl Display for Said {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Said {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn debug_tells_an_error_and_its_causes_and_no_text_twice() {
        let socket = Said("connection refused", None);
        let repeated = Said("no answer", Some(socket.into()));
        let driver = Said("the driver failed: no answer", Some(repeated.into()));
        let error = Error::Store {
            store: "s",
            transient: true,
            source: driver.into(),
        };
        let whole = "store s: the driver failed: no answer: connection refused";
        assert_eq!(format!("{error:?}"), whole);
        assert_eq!(format!("{error:#?}"), whole);
        // As other crates print a chain.
        assert_eq!(error.to_string(), "store s: the driver failed: no answer");
        let causes: Vec<_> = causes(&error).map(ToString::to_string).collect();
        assert_eq!(causes, ["connection refused"]);
        let invalid = Error::invalid("field", 1, "allowed is 2");
        assert_eq!(format!("{invalid:?}"), "field is \"1\": allowed is 2");
    }

    #[test]
    fn an_error_once_more_says_the_same() {
        let store = |transient| Error::Store {
            store: "s",
            transient,
            source: "away".into(),
        };
        let backend = |transient| Error::Backend {
            backend: "b",
            transient,
            source: "away".into(),
        };
        let encode = Error::Encode {
            kind: "k".to_owned(),
            source: serde_json::from_str::<u64>("x").unwrap_err(),
        };
        let worker = Error::Worker {
            source: "a defect".into(),
        };
        let invalid = Error::invalid("field", 1, "2");
        for error in [
            store(true),
            store(false),
            backend(true),
            backend(false),
            encode,
            worker,
            invalid,
        ] {
            let again = error.once_more();
            assert_eq!(again.to_string(), error.to_string());
            assert_eq!(again.is_transient(), error.is_transient());
        }
    }
}
