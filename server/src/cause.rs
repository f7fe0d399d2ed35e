//! Says why a request over HTTP has no answer.

use std::error::Error as _;

/// The first of all causes, which says most; what comes of it repeats the URL, in which a secret may be.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    while let Some(earlier) = cause.and_then(|cause| cause.source()) {
        cause = Some(earlier);
    }
    cause.map_or_else(|| "it could not be sent".to_owned(), ToString::to_string)
}
