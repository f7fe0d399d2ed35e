//! Why an attempt failed.

use std::fmt;

use crate::task::error::chain;

/// Why a handler failed; made from any error by `?`, and then the attempt has failed and is tried again.
///
/// ```
/// use delayline::Failure;
///
/// fn amount(text: &str) -> Result<u64, Failure> {
///     let amount = text.parse()?;
///     if amount == 0 {
///         return Err("nothing to pay".into());
///     }
///     Ok(amount)
/// }
///
/// assert!(amount("12").is_ok());
/// assert!(amount("twelve").is_err());
/// assert!(amount("0").is_err());
/// assert_eq!(amount("twelve").unwrap_err().to_string(), "invalid digit found in string");
/// ```
pub struct Failure(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self(cause.into())
    }
}

impl Failure {
    /// The error and its causes, in one line.
    pub fn reason(&self) -> String {
        chain(&*self.0)
    }
}

impl fmt::Display for Failure {
    /// As [`reason`](Self::reason).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())
    }
}

impl fmt::Debug for Failure {
    /// As `Display`: for those who return it from `main`, or unwrap it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())
    }
}
