//! Settings that stores on servers have in common.

use crate::Error;

/// The longest name: with the longest ending it still fits into what servers keep of one.
const LONGEST: usize = 40;

/// Refuses a name that would have to be written in a special way.
pub(in crate::store) fn check_name(field: &'static str, name: &str) -> Result<(), Error> {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_part = |byte: u8| is_first(byte) || byte.is_ascii_digit();
    if name.bytes().next().is_some_and(is_first) && name.bytes().all(is_part) && name.len() <= LONGEST {
        return Ok(());
    }
    let allowed = "allowed are 1 to 40 of a-z, 0-9 and _, the first no digit";
    Err(Error::invalid(field, name, allowed))
}

/// Refuses a store without connections.
pub(in crate::store) fn check_connections(count: u32) -> Result<usize, Error> {
    match usize::try_from(count) {
        Ok(0) => Err(Error::invalid("connections", 0, "allowed is 1 or more")),
        count => Ok(count.unwrap_or(usize::MAX)),
    }
}
