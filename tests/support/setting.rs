//! Settings of tests, from the environment.

use std::env;
use std::str::FromStr;

/// Reads the number that a variable sets, if it sets one.
pub(crate) fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is {text:?}: allowed is a whole number")))
}
