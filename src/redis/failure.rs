//! What the errors of servers and of their client mean.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::NAME;
use super::address::{Address, Topology};
use crate::Error;

/// For whom a connection is, and so what an error of it is an error of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A backend.
    Backend,
    /// A store.
    Store,
}

impl Role {
    pub(crate) fn error(
        self,
        transient: bool,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        let source = source.into();
        match self {
            Self::Backend => Error::Backend {
                backend: NAME,
                transient,
                source,
            },
            Self::Store => Error::Store {
                store: NAME,
                transient,
                source,
            },
        }
    }

    /// The error of every call after the end.
    pub(crate) fn closed(self) -> Error {
        self.error(false, "closed")
    }

    /// The error for an answer that did not come in time.
    pub(crate) fn timed_out(self, limit: Duration) -> Error {
        self.error(true, format!("no answer within {limit:?}"))
    }

    /// An error of this crate.
    pub(crate) fn failure(self, address: &Address, error: RedisError) -> Error {
        let transient = is_transient(&error, address.topology());
        // Servers before Redis 6, and proxies, repeat in their answer the words of a command that they do not know.
        let tells = address
            .password
            .as_ref()
            .is_some_and(|password| error.to_string().contains(password));
        if tells {
            return self.error(
                transient,
                "the server refused a command and repeated the password",
            );
        }
        self.error(transient, error)
    }
}

/// Whether the same call may succeed later though nobody changes a setting.
pub(super) fn is_transient(error: &RedisError, topology: &Topology) -> bool {
    #[cfg(feature = "redis-tls")]
    if super::tls::is_refused(error) {
        return false;
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::RESP3NotSupported
        | ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot) => false,
        // Replicas refer to a master that is dead until another one is there. Elsewhere it is an answer to those who take
        // a Cluster for one server.
        ErrorKind::Server(ServerErrorKind::Moved) => *topology == Topology::Cluster,
        // What has no name of its own is a command or an argument that the server does not take, except this one.
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.to_string().contains("max number of clients")
        }
        _ => !matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "WRONGTYPE")),
    }
}

/// Whether another connection may do what this one could not: it is lost, or leads to a server that is no longer the
/// one to write to.
pub(crate) fn is_connection_spent(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::ClusterConnectionNotFound
                | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_repeats_the_password_is_not_repeated() {
        let address = Address::parse("redis://:s3cret@host").expect("a good URL");
        let answer = "unknown command `HELLO`, with args beginning with: `3` `AUTH` `default` `s3cret`";
        let error = RedisError::from((ErrorKind::Extension, "ERR", answer.to_owned()));
        let error = Role::Backend.failure(&address, error);
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}
