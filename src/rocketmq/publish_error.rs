//! Classifies messages that were not published.

use rocketmq_client_rust::ClientError;

use super::failure::{MESSAGE_ILLEGAL, is_absence};
use super::{answer, failure};
use crate::Error;

/// Why a message was not published, as far as is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It may succeed later, or may have succeeded.
    #[error(transparent)]
    Failed(Error),
    /// No broker has the topic now: its brokers are away, or it is missing. None has the message, unless a connection broke.
    #[error(transparent)]
    Unreachable(Error),
    /// No broker will ever take it, for this reason.
    #[error("{0}")]
    Rejected(String),
}

impl PublishError {
    pub(super) fn of(cause: ClientError) -> Self {
        let failure = |cause| failure("publishing", cause);
        match answer(&cause) {
            Some(MESSAGE_ILLEGAL) => Self::Rejected(failure(cause).to_string()),
            _ if is_absence(&cause) => Self::Unreachable(failure(cause)),
            _ => Self::Failed(failure(cause)),
        }
    }

    /// Names the class of the error in metrics.
    pub(super) fn sort(&self) -> &'static str {
        match self {
            Self::Failed(error) | Self::Unreachable(error) => error.sort(),
            Self::Rejected(_) => "rejected",
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketmq_client_rust::MQClientException;

    use super::*;

    #[test]
    fn a_route_that_the_client_does_not_find_is_no_answer_of_a_server() {
        let of = |code| PublishError::of(MQClientException::new_with_code(code, "No route available").into());
        for code in 10_001..=10_006 {
            let error = of(code);
            assert!(matches!(error, PublishError::Unreachable(_)), "{code}: {error}");
            assert!(!error.to_string().contains("it answered"), "{code}: {error}");
        }
        assert!(matches!(of(14), PublishError::Failed(_)));
    }
}
