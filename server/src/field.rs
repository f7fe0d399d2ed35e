//! Errors of the library about a value, as the tool tells them.

use delayline::Error;

use crate::Failure;

/// Names the flag that gave a value, in place of the library's name for it.
pub(crate) fn by_flag(error: Error, flags: &[(&str, &str)]) -> Failure {
    let Error::Invalid {
        field,
        value,
        allowed,
    } = &error
    else {
        return error.into();
    };
    match flags.iter().find(|(name, _)| name == field) {
        Some((_, flag)) => Failure::Argument(format!("{flag} is {value:?}: {allowed}")),
        None => error.into(),
    }
}
