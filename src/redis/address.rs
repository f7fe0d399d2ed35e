//! Parses a URL: which servers, and the account.

use std::fmt;

use percent_encoding::percent_decode_str;

#[cfg(feature = "redis-tls")]
use super::tls::Tls;
use crate::Error;

const FIELD: &str = "redis url";
const ALLOWED: &str = "allowed are redis://[user][:password@]host[:port][/database], \
    redis+sentinel://[user][:password@]host[:port],…/master[/database] and \
    redis+cluster://[user][:password@]host[:port],…, each with rediss for TLS and then perhaps \
    ?ca=FILE&cert=FILE&key=FILE, with reserved characters percent-encoded";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Servers and the credentials for them, which are never shown.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) topology: Topology,
    pub(super) hosts: Vec<Host>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    #[cfg(feature = "redis-tls")]
    pub(super) tls: Option<Tls>,
}

/// How the servers are arranged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server.
    Single,
    /// Sentinels, which say which server is the master of this name.
    Sentinel(String),
    /// A Redis Cluster, of which some nodes are named.
    Cluster,
}

/// A name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let refused = || Error::invalid(FIELD, without_secrets(url), ALLOWED);
        let (scheme, rest) = url.split_once("://").ok_or_else(refused)?;
        let (scheme, topology) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(refused()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let (username, password) = match credentials.map(|it| it.split_once(':').unwrap_or((it, ""))) {
            Some((username, password)) => (decoded(username), decoded(password)),
            None => (Some(String::new()), Some(String::new())),
        };
        let (username, password) = (username.ok_or_else(refused)?, password.ok_or_else(refused)?);
        // A user without a password cannot log in; it is a password whose colon is missing.
        if password.is_empty() && credentials.is_some() {
            return Err(refused());
        }
        let (topology, port, database) = match topology {
            "" => (Topology::Single, PORT, path),
            "cluster" => (Topology::Cluster, PORT, path),
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                let master = decoded(master).filter(|master| !master.is_empty());
                (
                    Topology::Sentinel(master.ok_or_else(refused)?),
                    SENTINEL_PORT,
                    database,
                )
            }
            _ => return Err(refused()),
        };
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| refused())?,
        };
        let hosts: Option<Vec<_>> = hosts.split(',').map(|host| Host::parse(host, port)).collect();
        let hosts = hosts.ok_or_else(refused)?;
        let is_alone = topology == Topology::Single;
        // A Cluster has only one database.
        if (is_alone && hosts.len() > 1) || database < 0 || (topology == Topology::Cluster && database > 0) {
            return Err(refused());
        }
        if !is_tls && !query.is_empty() {
            return Err(refused());
        }
        #[cfg(not(feature = "redis-tls"))]
        if is_tls {
            return Err(Error::invalid(
                FIELD,
                without_secrets(url),
                "rediss, which is TLS, needs the feature `redis-tls` of this crate",
            ));
        }
        Ok(Self {
            topology,
            hosts,
            username: Some(username).filter(|name| !name.is_empty()),
            password: Some(password).filter(|password| !password.is_empty()),
            database,
            #[cfg(feature = "redis-tls")]
            tls: match is_tls {
                true => Some(Tls::read(files(query).ok_or_else(refused)?, refused)?),
                false => None,
            },
        })
    }

    /// Returns the first host and port.
    pub(crate) fn first(&self) -> String {
        let Host { name, port } = &self.hosts[0];
        format!("{name}:{port}")
    }

    pub(crate) fn database(&self) -> i64 {
        self.database
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Says whether slots are on several servers.
    pub(crate) fn is_clustered(&self) -> bool {
        self.topology == Topology::Cluster
    }
}

impl Host {
    fn parse(text: &str, port: u16) -> Option<Self> {
        // An IPv6 address is in brackets, as it has colons itself.
        let (name, rest) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if rest.is_empty() => port,
            None => return None,
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        let is_name = !name.is_empty() && name.chars().all(fits);
        is_name.then(|| Self {
            name: name.to_owned(),
            port,
        })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Host { name, port }) in self.hosts.iter().enumerate() {
            write!(f, "{}{name}:{port}", if at > 0 { "," } else { "" })?;
        }
        if let Topology::Sentinel(master) = &self.topology {
            write!(f, "/{master}")?;
        }
        if !self.is_clustered() {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

/// Reads the names in a query, each with its file.
#[cfg(feature = "redis-tls")]
fn files(query: &str) -> Option<Vec<(&str, std::path::PathBuf)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let file = |(name, file)| Some((name, decoded(file)?.into()));
    let files = pairs.map(|pair: &str| pair.split_once('=').and_then(file));
    files.collect()
}

/// Decodes percent-encoded text of a URL.
fn decoded(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

/// Keeps as much of a URL as cannot be a password, nor a part of one.
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
            "redis://s3cret@host",
            "http://:s3cret@host",
            ":s3cret@host",
            "user:s3cret",
            "redis:s3cret@host",
            "redis://host:1x/s3cret",
            "redis://host:1x?password=s3cret",
            "redis://host/?protocol=s3cret",
            "redis://host?protocol=s3cret",
            "redis://0.0.0.0/s3cret",
            "redis+cluster://:s3cret@host,other/1",
            "redis+cluster://:s3cret@host,/",
            "redis+sentinel://:s3cret@host,other",
            "redis+ring://:s3cret@host",
            "redis://:s3cret@host,other",
            "redis://:s3cret@host/-1",
            "redis://:s3%FFcret@host",
        ] {
            let error = Address::parse(url).expect_err(url);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("cret"), "{url}: {shown}");
            assert!(shown.contains("redis url"), "{shown}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_read_is_named_as_far_as_it_may_be() {
        let error = Address::parse("redis://user:s3cret@cache.example:6379/nine").expect_err("not a number");
        assert!(
            error.to_string().contains("redis://***@cache.example:6379"),
            "{error}"
        );
    }

    #[test]
    fn one_server_is_read_from_its_url() {
        let address = Address::parse("redis://us%65r:s3%40cret@cache.example:6380/2").expect("a good URL");
        assert_eq!(format!("{address:?}"), "cache.example:6380/2");
        assert_eq!(address.topology, Topology::Single);
        assert_eq!(address.username.as_deref(), Some("user"));
        assert_eq!(address.password.as_deref(), Some("s3@cret"));
        let address = Address::parse("redis://[::1]").expect("a good URL");
        assert_eq!(address.hosts, [host("::1", 6379)]);
        assert_eq!(address.password, None);
    }

    #[test]
    fn sentinels_are_read_from_their_url() {
        let address = Address::parse("redis+sentinel://:pw@one,two:7/orders/3").expect("a good URL");
        assert_eq!(address.topology, Topology::Sentinel("orders".into()));
        assert_eq!(address.hosts, [host("one", 26379), host("two", 7)]);
        assert_eq!(address.database(), 3);
        assert_eq!(format!("{address:?}"), "one:26379,two:7/orders/3");
    }

    #[test]
    fn a_cluster_is_read_from_its_url() {
        let address = Address::parse("redis+cluster://one:1,two,three:3").expect("a good URL");
        assert_eq!(address.topology, Topology::Cluster);
        assert_eq!(
            address.hosts,
            [host("one", 1), host("two", 6379), host("three", 3)]
        );
        assert_eq!(format!("{address:?}"), "one:1,two:6379,three:3");
    }

    #[cfg(not(feature = "redis-tls"))]
    #[test]
    fn tls_names_the_feature_that_it_needs() {
        let error = Address::parse("rediss://host").expect_err("no TLS here");
        assert!(error.to_string().contains("redis-tls"), "{error}");
    }

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.into(),
            port,
        }
    }
}
