//! Converts the client's errors into this crate's.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::{fmt, io};

use rocketmq_client_rust::{ClientError, MQClientException};

use super::NAME;
use crate::Error;

/// The answer of a broker to a request that it does not know.
const NOT_SUPPORTED: i32 = 3;
/// The answer of a broker to a message that it will never take.
pub(super) const MESSAGE_ILLEGAL: i32 = 13;
/// The answer of a broker or its access control to a denied request.
pub(super) const NO_PERMISSION: i32 = 16;
/// The answer of a nameserver for a topic that no broker has registered.
pub(super) const NO_TOPIC: i32 = 17;
/// The codes that the client gives its own errors (`ClientErrorCode`), as for a topic without a route where a broker
/// would derive new topics from `TBW102`.
const OF_CLIENT: RangeInclusive<i32> = 10_001..=10_007;

/// Explains the codes of servers (`ResponseCode` of Apache's), as far as an operator can do something.
fn meaning(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "the server has an error of its own, which its log tells",
        2 => "the server is busy, and takes the request later",
        NOT_SUPPORTED => "the server does not know the request: it is of an older release",
        10 => "the broker has it, and has not written it to its disk in time",
        11 => "the broker has no replica to copy it to",
        12 => "the broker has it, and its replica has not copied it in time",
        MESSAGE_ILLEGAL => {
            "the broker does not take such a message: its body is longer than maxMessageSize allows, with its properties for \
             brokers before 5.0, or its properties are longer than 32,767 bytes together, or its time is too far"
        }
        14 => "the broker does not take messages now: it is full, read-only, or ends",
        15 => "the server does not know this version of the protocol",
        NO_PERMISSION => DENIED,
        NO_TOPIC => NOWHERE,
        26 => "the broker has no such consumer group, and makes none by itself",
        _ => return None,
    })
}

/// The meaning of denied access.
const DENIED: &str =
    "access is denied: the credentials are wrong, or missing, or their account may not do it";

/// The meaning of a missing route.
const NOWHERE: &str =
    "the nameservers know no broker that has the topic: its brokers are away, or it is missing";

/// The client's name for a missing route, as for everything that it thinks wrong with a call.
const NO_ROUTE: &str = "core.argument.invalid";

/// The beginning of the client's names for settings that it cannot use.
const CONFIGURATION: &str = "core.configuration.";

/// What the client failed to do, and why as far as it says: it hides the texts of servers.
#[derive(Debug)]
struct ClientFailure {
    doing: Cow<'static, str>,
    cause: ClientError,
}

impl ClientFailure {
    /// Puts the client's error into words; its own are for readers of its code.
    fn words(&self) -> Cow<'static, str> {
        let descriptor = self.cause.descriptor();
        let code = descriptor.code().as_str();
        if self.cause.is(&rocketmq_error::TRANSPORT_CONNECTION_FAILED) {
            return "no connection".into();
        }
        if self.cause.is(&rocketmq_error::TRANSPORT_CONNECTION_TIMEOUT) {
            return "no connection in time".into();
        }
        if self.cause.is(&rocketmq_error::TRANSPORT_RESPONSE_TIMEOUT) {
            return "no answer in time".into();
        }
        match (answer(&self.cause), code) {
            (None, NO_ROUTE) => "the nameservers know no broker for it, or an argument is invalid".into(),
            _ => format!("{} ({code})", descriptor.public_message()).into(),
        }
    }
}

impl fmt::Display for ClientFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.cause.descriptor().code().as_str();
        let answer = answer(&self.cause);
        write!(f, "{} failed: ", self.doing)?;
        if let Some(meaning) = answer.and_then(meaning) {
            f.write_str(meaning)?;
        } else {
            f.write_str(&self.words())?;
        }
        if let Some(connection) = self.cause.source_ref::<io::Error>() {
            write!(f, ", {connection}")?;
        }
        if code.starts_with(CONFIGURATION)
            && let Some(defect) = deepest(self.cause.shared_error().as_ref())
        {
            write!(f, ", {defect}")?;
        }
        if is_distrust(&self.cause) {
            write!(
                f,
                "; look at what RocketMqOptions::tls was given, and at the servers' certificates"
            )?;
        }
        if let Some(code) = answer {
            write!(f, " (it answered {code})")?;
        }
        if let Some(address) = self.cause.broker_addr() {
            write!(f, ", broker {address}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ClientFailure {}

/// Makes the error of a call of the client.
pub(crate) fn failure(doing: impl Into<Cow<'static, str>>, cause: ClientError) -> Error {
    let doing = doing.into();
    Error::Backend {
        backend: NAME,
        transient: is_transient(&cause),
        source: Box::new(ClientFailure { doing, cause }),
    }
}

/// Makes the error of a broker that was not reached. It may be up and have registered an address that only it can use,
/// such as that of a container.
pub(crate) fn unreached(address: &str, error: Error) -> Error {
    explained(
        &format!(
            "no answer from {address}, the address that the broker has registered by its setting brokerIP1"
        ),
        error,
    )
}

/// Finds the last cause of an error, if it has one.
fn deepest(error: &dyn std::error::Error) -> Option<&dyn std::error::Error> {
    std::iter::successors(error.source(), |cause| cause.source())
        .last()
        .map(|cause| cause as _)
}

/// Says whether it may go away by itself.
fn is_transient(cause: &ClientError) -> bool {
    if let Some(code) = answer(cause) {
        return ![NOT_SUPPORTED, MESSAGE_ILLEGAL, NO_PERMISSION].contains(&code);
    }
    let code = cause.descriptor().code().as_str();
    !code.starts_with(CONFIGURATION) && !code.starts_with("client.lifecycle.") && !is_distrust(cause)
}

/// Returns the code that a server answered with, if it did: for some requests the client hides it in an invalid
/// argument.
pub(crate) fn answer(cause: &ClientError) -> Option<i32> {
    cause
        .broker_response_code()
        .or_else(|| Some(cause.source_ref::<MQClientException>()?.response_code()))
        .filter(|code| *code > 0 && !OF_CLIENT.contains(code))
}

/// Says whether a server denies access.
pub(crate) fn is_refusal(cause: &ClientError) -> bool {
    answer(cause) == Some(NO_PERMISSION)
}

/// Says whether no broker was found or reached, or a connection to one broke.
pub(super) fn is_absence(cause: &ClientError) -> bool {
    if let Some(code) = answer(cause) {
        return code == NO_TOPIC;
    }
    let is_unconnected = cause.is(&rocketmq_error::TRANSPORT_CONNECTION_FAILED)
        || cause.is(&rocketmq_error::TRANSPORT_CONNECTION_TIMEOUT);
    is_unconnected && !is_distrust(cause) || cause.descriptor().code().as_str() == NO_ROUTE
}

/// Says whether a server has taken a request and not answered.
pub(super) fn is_silence(cause: &ClientError) -> bool {
    cause.is(&rocketmq_error::TRANSPORT_RESPONSE_TIMEOUT)
}

/// Says whether a server's certificate is not trusted, or it does not speak TLS.
fn is_distrust(cause: &ClientError) -> bool {
    cause
        .source_ref::<io::Error>()
        .is_some_and(|connection| connection.kind() == io::ErrorKind::InvalidData)
}

/// Says whether a server has hung up without a reason.
pub(super) fn is_hung_up(cause: &ClientError) -> bool {
    cause.is(&rocketmq_error::TRANSPORT_CONNECTION_FAILED) && cause.source_ref::<io::Error>().is_none()
}

/// Makes the error of a server that denies access.
pub(super) fn denied(doing: &str, server: &str) -> Error {
    permanent(format!("{doing} failed: {DENIED}, broker {server}"))
}

/// Adds what the error means to the caller; the kind stays.
pub(super) fn explained(meaning: &str, error: Error) -> Error {
    let transient = error.is_transient();
    let source = match error {
        Error::Backend { source, .. } => source,
        other => other.into(),
    };
    Error::Backend {
        backend: NAME,
        transient,
        source: format!("{meaning}: {source}").into(),
    }
}

/// Makes an error of this crate that may go away by itself.
pub(crate) fn transient(text: impl Into<String>) -> Error {
    Error::Backend {
        backend: NAME,
        transient: true,
        source: text.into().into(),
    }
}

/// Makes an error of this crate that stays.
pub(crate) fn permanent(text: impl Into<String>) -> Error {
    Error::Backend {
        backend: NAME,
        transient: false,
        source: text.into().into(),
    }
}

/// Makes the error of every call after close.
pub(crate) fn closed() -> Error {
    permanent("it is closed")
}
