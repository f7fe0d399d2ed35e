//! The client's errors, in this crate's words.

use std::fmt;

use rocketmq_client_rust::ClientError;

use super::NAME;
use crate::Error;

/// A broker that was asked for something it does not know, answers so.
const NOT_SUPPORTED: i32 = 3;
/// A broker answers so to a message that it will never take.
const MESSAGE_ILLEGAL: i32 = 13;
/// A broker or its access control answers so.
const NO_PERMISSION: i32 = 16;

/// The client calls a missing route so, like everything that it thinks wrong with a call.
const NO_ROUTE: &str = "core.argument.invalid";

/// What the client failed to do, and why as far as it says: it keeps the texts of servers to itself.
#[derive(Debug)]
struct Failure {
    doing: &'static str,
    cause: ClientError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let descriptor = self.cause.descriptor();
        let code = descriptor.code().as_str();
        let message = match code {
            NO_ROUTE => "The nameservers know no broker for it, or an argument is invalid",
            _ => descriptor.public_message(),
        };
        let advice = descriptor.recovery_hint();
        write!(f, "{} failed: {message} ({code}, advice: {advice})", self.doing)?;
        if let Some(code) = self.cause.broker_response_code() {
            write!(f, ", the server answered {code}")?;
        }
        if let Some(address) = self.cause.broker_addr() {
            write!(f, ", broker {address}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The error of a call of the client.
pub(crate) fn failure(doing: &'static str, cause: ClientError) -> Error {
    Error::Backend {
        backend: NAME,
        transient: is_transient(&cause),
        source: Box::new(Failure { doing, cause }),
    }
}

/// Whether it may go away by itself.
fn is_transient(cause: &ClientError) -> bool {
    if let Some(code) = cause.broker_response_code() {
        return ![NOT_SUPPORTED, MESSAGE_ILLEGAL, NO_PERMISSION].contains(&code);
    }
    let code = cause.descriptor().code().as_str();
    !code.starts_with("core.configuration.") && !code.starts_with("client.lifecycle.")
}

/// An error of ours, in words, that may go away by itself.
pub(crate) fn transient(text: impl Into<String>) -> Error {
    Error::Backend {
        backend: NAME,
        transient: true,
        source: text.into().into(),
    }
}

/// An error of ours, in words, that stays.
pub(crate) fn permanent(text: impl Into<String>) -> Error {
    Error::Backend {
        backend: NAME,
        transient: false,
        source: text.into().into(),
    }
}

/// The error of every call after close.
pub(crate) fn closed() -> Error {
    permanent("it is closed")
}
