//! Checks the prefix of keys.

use crate::Error;

/// Refuses a prefix that would change the hash tag, or cannot be typed.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Error> {
    let fits = (1..=100).contains(&prefix.len());
    if !fits || prefix.chars().any(|c| c.is_control() || c == '{' || c == '}') {
        return Err(Error::invalid(
            "redis key prefix",
            prefix,
            "allowed are 1 to 100 bytes without braces and control characters",
        ));
    }
    Ok(())
}
