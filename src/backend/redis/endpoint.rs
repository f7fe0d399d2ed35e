//! Which server, how to connect to it, and what its errors mean.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo, RedisError,
    RedisResult, ServerErrorKind,
};

use super::NAME;
use crate::{Error, defaults};

/// A server and the credentials for it, which nothing here ever shows.
#[derive(Clone)]
pub(super) struct Endpoint {
    client: Client,
}

impl Endpoint {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let refused = |_| {
            Error::invalid(
                "redis url",
                without_secrets(url),
                "allowed is redis://[user][:password@]host[:port][/database], with reserved characters \
                 percent-encoded",
            )
        };
        let info = url.into_connection_info().map_err(refused)?;
        // Small commands follow each other on one connection: none may wait for the answer to the one before.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).map_err(refused)?;
        Ok(Self { client })
    }

    pub(super) fn database(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    /// A connection for commands.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let info = self.client.get_connection_info();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP2);
        Client::open(info.clone().set_redis_settings(settings))?
            .get_multiplexed_async_connection_with_config(&config())
            .await
    }

    /// A connection for commands on which messages come too; `told` is given them, and the loss of the connection.
    ///
    /// That takes RESP3, which Redis speaks since version 6.
    pub(super) async fn connect_listening(
        &self,
        told: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let info = self.client.get_connection_info();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let config = config().set_push_sender(move |push| {
            told(push);
            Ok::<(), redis::aio::SendError>(())
        });
        Client::open(info.clone().set_redis_settings(settings))?
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// An error of this crate.
    pub(super) fn error(&self, error: RedisError) -> Error {
        let transient = is_transient(&error);
        let password = self.client.get_connection_info().redis_settings().password();
        // Servers before Redis 6, and proxies, repeat in their answer the words of a command that they do not know.
        let tells =
            password.is_some_and(|password| !password.is_empty() && error.to_string().contains(password));
        let source = if tells {
            "the server refused a command and repeated the password".into()
        } else {
            error.into()
        };
        Error::Backend {
            backend: NAME,
            transient,
            source,
        }
    }

    /// The error for an answer that did not come in time.
    pub(super) fn timed_out(limit: Duration) -> Error {
        Error::Backend {
            backend: NAME,
            transient: true,
            source: format!("no answer within {limit:?}").into(),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.client.get_connection_info();
        write!(f, "{}/{}", info.addr(), self.database())
    }
}

/// Callers set their own limits, which include the time to connect.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(defaults::SEND_TIMEOUT))
        .set_response_timeout(None)
}

/// Whether the same call may succeed later though nobody changes a setting.
fn is_transient(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::RESP3NotSupported
        | ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot | ServerErrorKind::Moved) => {
            false
        }
        // What has no name of its own is a command or an argument that the server does not take, except this one.
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.to_string().contains("max number of clients")
        }
        _ => !matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "WRONGTYPE")),
    }
}

/// Whether another connection may do what this one could not: it is lost, or leads to a server that is no longer the
/// one to write to.
pub(super) fn is_connection_spent(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

/// As much of a URL as surely is no password, nor a part of one.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // The last one: a password with an unescaped '@', '/' or '?' is why many a URL cannot be read.
    let (secret, place) = rest
        .rsplit_once('@')
        .map_or(("", rest), |(_, place)| ("***@", place));
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = place.split_once('/').map_or((place, ""), |(a, _)| (a, "/***"));
    let is_host_and_port = !authority.starts_with(':')
        && authority
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit() || byte == b']'));
    let scheme = if scheme.is_empty() {
        String::new()
    } else {
        format!("{scheme}://")
    };
    if is_host_and_port {
        format!("{scheme}{secret}{authority}{path}")
    } else {
        format!("{scheme}***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_read_is_refused_without_its_password() {
        for url in [
            "redis://:s3cret@host:port/0",
            "redis://user:s3cret@host/nine",
            "redis://user:s3cret",
            "redis://:s3cret",
            "redis://:s3/cret@@host:1x",
            "redis://:a/s3cret?b#c@host:1x",
            "redis://:s3cret@",
            "rediss://:s3cret@host",
            "http://:s3cret@host",
            ":s3cret@host",
            "user:s3cret",
            "redis:s3cret@host",
            "redis://host:1x/s3cret",
            "redis://host:1x?password=s3cret",
            "redis://host/?protocol=s3cret",
            "redis://host?protocol=s3cret",
            "redis://0.0.0.0/s3cret",
        ] {
            let error = Endpoint::parse(url).expect_err(url);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("cret"), "{url}: {shown}");
            assert!(shown.contains("redis url"), "{shown}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_read_is_named_as_far_as_it_may_be() {
        let error = Endpoint::parse("redis://user:s3cret@cache.example:6379/nine").expect_err("not a number");
        assert!(
            error.to_string().contains("redis://***@cache.example:6379"),
            "{error}"
        );
    }

    #[test]
    fn an_endpoint_is_shown_without_its_password() {
        let endpoint = Endpoint::parse("redis://user:s3cret@cache.example:6380/2").expect("a good URL");
        assert_eq!(format!("{endpoint:?}"), "cache.example:6380/2");
        assert_eq!(endpoint.database(), 2);
    }

    #[test]
    fn a_server_that_repeats_the_password_is_not_repeated() {
        let endpoint = Endpoint::parse("redis://:s3cret@host").expect("a good URL");
        let answer = "unknown command `HELLO`, with args beginning with: `3` `AUTH` `default` `s3cret`";
        let error = RedisError::from((ErrorKind::Extension, "ERR", answer.to_owned()));
        let error = endpoint.error(error);
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}
