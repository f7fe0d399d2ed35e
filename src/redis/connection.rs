//! Connects to servers in any arrangement.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    Pipeline, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, RedisFuture, RedisResult, Value,
};

#[cfg(feature = "redis-tls")]
use redis::TlsMode;

use super::address::{Address, Host, Topology};
use super::failure::is_transient;
use crate::defaults;

/// How often a call to a Cluster follows a redirection, or tries again where a master is being replaced.
const CLUSTER_RETRIES: u32 = 6;
/// The first and the longest pause between these, in ms.
const CLUSTER_PAUSES: (u64, u64) = (16, 256);

/// A connection for commands.
#[derive(Clone)]
pub(crate) enum Connection {
    /// To one server.
    One(MultiplexedConnection),
    /// To all masters of a Cluster: a command goes to the one that has its first key.
    Cluster(ClusterConnection),
}

impl Address {
    /// Makes a connection for commands; each node of a Cluster has to answer within `answer_within`.
    pub(super) async fn connect(&self, answer_within: Duration) -> RedisResult<Connection> {
        match &self.topology {
            Topology::Cluster => {
                let client = self.cluster(answer_within)?;
                match client.get_async_connection().await {
                    Ok(connection) => Ok(Connection::Cluster(connection)),
                    Err(error) => Err(self.refusal().await.unwrap_or(error)),
                }
            }
            _ => Ok(Connection::One(
                self.single(ProtocolVersion::RESP2, config()).await?,
            )),
        }
    }

    /// Finds out why the nodes of a Cluster refuse access, if one of them says it: the client keeps only the words of
    /// that.
    async fn refusal(&self) -> Option<RedisError> {
        for host in &self.hosts {
            let info = self.info(host, self.login(ProtocolVersion::RESP2)).ok()?;
            match open(info, config()).await {
                Err(error) if is_transient(&error, &self.topology) => {}
                said => return said.err(),
            }
        }
        None
    }

    /// Makes a connection for commands that also receives messages; `on_push` gets them, and the loss of the connection.
    /// In a Cluster it is a connection to any of its nodes, each of which passes every message on.
    ///
    /// That takes RESP3, which Redis speaks since version 6.
    pub(crate) async fn connect_listening(
        &self,
        on_push: impl Fn(PushInfo) + Send + Sync + Clone + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let config = || {
            let on_push = on_push.clone();
            config().set_push_sender(move |push| {
                on_push(push);
                Ok::<(), redis::aio::SendError>(())
            })
        };
        if !self.is_clustered() {
            return self.single(ProtocolVersion::RESP3, config()).await;
        }
        let mut failure = None;
        // From a random one on, so that not all processes listen at the same node.
        let first = fastrand::usize(..self.hosts.len());
        for at in 0..self.hosts.len() {
            let host = &self.hosts[(first + at) % self.hosts.len()];
            let info = self.info(host, self.login(ProtocolVersion::RESP3))?;
            match open(info, config()).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure
            .unwrap_or_else(|| RedisError::from((ErrorKind::InvalidClientConfig, "no nodes are named"))))
    }

    /// Connects to the one server, or to the one that is the master now.
    async fn single(
        &self,
        protocol: ProtocolVersion,
        config: AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let Topology::Sentinel(master) = &self.topology else {
            return open(self.info(&self.hosts[0], self.login(protocol))?, config).await;
        };
        match self.master(master, protocol, &config, true).await {
            // Many have a password for the servers only.
            Err(error) if error.kind() == ErrorKind::AuthenticationFailed => {
                self.master(master, protocol, &config, false).await
            }
            connected => connected,
        }
    }

    /// Connects to the server that sentinels name, with or without credentials for the sentinels.
    async fn master(
        &self,
        master: &str,
        protocol: ProtocolVersion,
        config: &AsyncConnectionConfig,
        tells_sentinels: bool,
    ) -> RedisResult<MultiplexedConnection> {
        let sentinels = self.hosts.iter().map(|host| self.addr(host));
        let sentinels = sentinels.collect::<RedisResult<Vec<_>>>()?;
        let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
            .set_client_to_redis_db(self.database)
            .set_client_to_redis_protocol(protocol)
            .set_client_to_redis_tcp_settings(no_delay())
            .set_client_to_sentinel_tcp_settings(no_delay());
        if let Some(username) = &self.username {
            builder = builder.set_client_to_redis_username(username);
            if tells_sentinels {
                builder = builder.set_client_to_sentinel_username(username);
            }
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
            if tells_sentinels {
                builder = builder.set_client_to_sentinel_password(password);
            }
        }
        #[cfg(feature = "redis-tls")]
        if let Some(tls) = &self.tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(tls.certificates())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(tls.certificates());
        }
        builder.build()?.get_async_connection_with_config(config).await
    }

    fn cluster(&self, answer_within: Duration) -> RedisResult<ClusterClient> {
        let nodes = self.hosts.iter().map(|host| {
            let login = self.login(ProtocolVersion::RESP2);
            self.info(host, login)
        });
        let nodes = nodes.collect::<RedisResult<Vec<_>>>()?;
        let (first, longest) = CLUSTER_PAUSES;
        let builder = ClusterClientBuilder::new(nodes)
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(first)
            .max_retry_wait(longest)
            .connection_timeout(defaults::SEND_TIMEOUT)
            .response_timeout(answer_within)
            .tcp_settings(no_delay());
        #[cfg(feature = "redis-tls")]
        let builder = match &self.tls {
            Some(tls) => builder.tls(TlsMode::Secure).certs(tls.certificates()),
            None => builder,
        };
        builder.build()
    }

    fn login(&self, protocol: ProtocolVersion) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(protocol);
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }

    fn info(&self, host: &Host, login: RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
        let info = self.addr(host)?.into_connection_info()?;
        Ok(info.set_redis_settings(login).set_tcp_settings(no_delay()))
    }

    fn addr(&self, host: &Host) -> RedisResult<ConnectionAddr> {
        let Host { name, port } = host.clone();
        #[cfg(feature = "redis-tls")]
        if let Some(tls) = &self.tls {
            let addr = ConnectionAddr::TcpTls {
                host: name,
                port,
                insecure: false,
                tls_params: None,
            };
            let client = Client::build_with_tls(addr, tls.certificates())?;
            return Ok(client.get_connection_info().addr().clone());
        }
        Ok(ConnectionAddr::Tcp(name, port))
    }
}

async fn open(info: ConnectionInfo, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
    Client::open(info)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Without limits: callers set their own, which include the time to connect.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(defaults::SEND_TIMEOUT))
        .set_response_timeout(None)
}

/// For small commands on one connection: none may wait for the answer to the one before.
fn no_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(command),
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(commands, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(commands, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::One(_) => "One",
            Self::Cluster(_) => "Cluster",
        })
    }
}
