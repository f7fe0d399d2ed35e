//! What is said of nameservers that cannot be used.

use delayline::Error;

use crate::Failure;

/// Names the argument in an error that is about one.
pub(crate) fn refused(error: Error) -> Failure {
    match error {
        Error::Invalid {
            field: "nameservers",
            value,
            allowed,
        } => Failure::Argument(format!("--nameserver is {value:?}: {allowed}")),
        error => error.into(),
    }
}
