//! Classifies the errors of servers and of their client.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::NAME;
use super::address::{Address, Topology};
use crate::Error;

/// The longest text of a server that is repeated, in bytes.
const LONGEST: usize = 1_000;

/// The user of a connection, which its errors name.
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

    /// Converts an error of the client into one of this crate.
    pub(crate) fn failure(self, address: &Address, error: RedisError) -> Error {
        let transient = is_transient(&error, address.topology());
        // Servers before Redis 6, and proxies, repeat the words of an unknown command in their answer.
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
        let text = error.to_string();
        if text.len() <= LONGEST && !text.contains(char::is_control) {
            return self.error(transient, error);
        }
        // The server's text may end in a log, and on a terminal.
        let plain: String = text.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        self.error(transient, plain)
    }
}

/// Says whether the same call may succeed later without a change of settings.
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
        // Replicas refer to a dead master until another one is there. Elsewhere it is the answer to a client that takes
        // a Cluster for one server.
        ErrorKind::Server(ServerErrorKind::Moved) => *topology == Topology::Cluster,
        // An error without a name of its own is a command or an argument that the server does not take, except this
        // one.
        ErrorKind::Server(ServerErrorKind::ResponseError) => match code_within_script(error) {
            Some(code) => !matches!(code, "ERR" | "NOPERM" | "WRONGTYPE"),
            None => error.to_string().contains("max number of clients"),
        },
        _ => !matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "WRONGTYPE")),
    }
}

/// Says whether another connection may do what this one could not: it is lost, or leads to a server that is no longer
/// the one to write to.
pub(crate) fn is_connection_spent(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::ClusterConnectionNotFound
                | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
        || code_within_script(error) == Some("READONLY")
}

/// Finds how a command within a script failed, where the server says it only in the text of the script's error, as
/// those before Redis 7 do: `Error running script (call to f_1a2b): @user_script:64: @user_script: 64: -OOM command not
/// allowed`.
fn code_within_script(error: &RedisError) -> Option<&str> {
    let (_, within) = error.detail()?.split_once("@user_script")?;
    let (_, said) = within.split_once(": -")?;
    let code = said.split(' ').next()?;
    code.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_servers_tell_how_a_command_of_a_script_failed_in_their_words() {
        let meant = |said: &str| {
            let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
            let within = format!("Error running script (call to f_1a2b): @user_script:64: {said}");
            let error = RedisError::from((kind, "An error was signalled by the server", within));
            (
                is_transient(&error, &Topology::Single),
                is_connection_spent(&error),
            )
        };
        let full = "@user_script: 64: -OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(meant(full), (true, false));
        let replica = "@user_script: 64: -READONLY You can't write against a read only replica.";
        assert_eq!(meant(replica), (true, true));
        let refused = "@user_script: 64: -NOPERM this user has no permissions to run the 'zadd' command";
        assert_eq!(meant(refused), (false, false));
        assert_eq!(meant("attempt to index a nil value: -1"), (false, false));
        assert_eq!(
            meant("@user_script: 64: Wrong number of args calling Redis command"),
            (false, false)
        );
    }

    #[test]
    fn what_a_server_says_is_short_and_without_what_a_terminal_would_obey() {
        let address = Address::parse("redis://host").expect("a good URL");
        let said = format!("\u{1b}[31mred\n{}", "x".repeat(100_000));
        let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
        let error = RedisError::from((kind, "An error was signalled by the server", said));
        let shown = Role::Backend.failure(&address, error).to_string();
        assert!(
            shown.contains("[31mred") && !shown.contains(char::is_control),
            "{shown}"
        );
        assert!(shown.len() < 1_100, "{}", shown.len());
    }

    #[test]
    fn a_server_that_repeats_the_password_is_not_repeated() {
        let address = Address::parse("redis://:s3cret@host").expect("a good URL");
        let answer = "unknown command `HELLO`, with args beginning with: `3` `AUTH` `default` `s3cret`";
        let error = RedisError::from((ErrorKind::Extension, "ERR", answer.to_owned()));
        let error = Role::Backend.failure(&address, error);
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}
