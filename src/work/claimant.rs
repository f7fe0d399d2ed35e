//! Names and leases of claims.

use std::time::Duration;

use crate::Error;
use crate::task::is_hidden;

/// The longest name of a claimant, in bytes.
const LONGEST_NAME: usize = 255;

/// Refuses a lease that no claim may have.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&lease) {
        return Ok(());
    }
    Err(Error::invalid(
        "lease",
        format_args!("{lease:?}"),
        "allowed is 1 s or more, up to a day",
    ))
}

/// Refuses a name that no row may have as its owner.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), Error> {
    if name.len() <= LONGEST_NAME && !name.chars().any(is_hidden) {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        name.escape_debug(),
        format!(
            "allowed are up to {LONGEST_NAME} bytes without control characters and bidirectional overrides"
        ),
    ))
}
