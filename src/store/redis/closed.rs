//! How scripts say that their slot is closed.

use redis::RedisError;

use crate::Error;

/// Whether a slot has said that it is closed: then nothing was done, and is to be done where the row is by the layout that
/// there is now.
pub(super) fn is_closed(error: &Error) -> bool {
    let Error::Store { source, .. } = error else {
        return false;
    };
    source
        .downcast_ref::<RedisError>()
        .is_some_and(|error| error.code() == Some("CLOSED"))
}
