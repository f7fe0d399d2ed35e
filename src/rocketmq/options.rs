//! Options for connecting.

#[cfg(feature = "rocketmq-tls")]
use std::path::PathBuf;
use std::time::Duration;

use super::credentials::Credentials;
use super::message::LONGEST_BODY;
use super::names::{check_group, check_topic};
#[cfg(feature = "rocketmq-tls")]
use super::tls::TlsFiles;
use crate::Error;
use crate::delay::LevelTable;

/// The longest body that can be allowed: brokers take no request of more than 16 MiB.
const LARGEST_MESSAGE: usize = 16 << 20;
/// Characters that are in no host's name: an address with one is meant for something else, and may hold a password.
const NO_HOST: [char; 4] = ['@', '/', '=', ' '];

/// The nameservers, and how to use them: for all that connects to RocketMQ, such as
/// [`RocketMqBackend::connect`](crate::backend::RocketMqBackend::connect) and [`Forward::connect`](crate::Forward::connect).
///
/// A plain `"HOST:PORT"` is enough where the defaults fit.
#[derive(Clone, Debug)]
pub struct RocketMqOptions {
    pub(crate) nameservers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) levels: Option<LevelTable>,
    pub(super) credentials: Option<Credentials>,
    #[cfg(feature = "rocketmq-tls")]
    pub(super) tls: Option<TlsFiles>,
    pub(crate) longest_timer: Option<Duration>,
    pub(crate) lazy: bool,
    pub(crate) max_message_size: usize,
}

impl RocketMqOptions {
    /// Makes options for nameservers as `HOST:PORT`, several separated by semicolons.
    pub fn new(nameservers: impl Into<String>) -> Self {
        Self {
            nameservers: nameservers.into(),
            topic: "delayline_wakes".into(),
            group: "delayline_workers".into(),
            levels: None,
            credentials: None,
            #[cfg(feature = "rocketmq-tls")]
            tls: None,
            longest_timer: None,
            lazy: false,
            max_message_size: LONGEST_BODY,
        }
    }

    /// Sets how many bytes the body of a message may have: the brokers' `maxMessageSize`. Default 4 MiB, as theirs.
    ///
    /// A longer message is not published, and is received as it is, without being decompressed.
    #[must_use]
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.max_message_size = bytes;
        self
    }

    /// Sets the topic of wake-ups. Default `delayline_wakes`; created on every master that lacks it.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// Sets the consumer group that all workers of one service share. Default `delayline_workers`.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets the level table of brokers that do not report theirs.
    ///
    /// It must be their `messageDelayLevel`. A wrong one makes wake-ups early or late, and loses none.
    #[must_use]
    pub fn levels(mut self, levels: LevelTable) -> Self {
        self.levels = Some(levels);
        self
    }

    /// Sets the account that signs every request: of `plain_acl.yml` on 4.x, and of ACL 2.0 on 5.x.
    ///
    /// It must be allowed to publish to the topic and, for workers, to subscribe to it in the group. An account with no
    /// more rights than that needs the topic to exist, and [`levels`](Self::levels) where it may not read the brokers'
    /// settings.
    #[must_use]
    pub fn credentials(mut self, access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::new(access_key.into(), secret_key.into()));
        self
    }

    /// Speaks TLS with nameservers and brokers alike, and trusts only certificates by the authorities in this PEM file.
    ///
    /// The certificates must be for the hosts as they are spelt: in `nameservers`, and by the brokers themselves
    /// (`brokerIP1`). A program that links several providers of cryptography for rustls must choose a default one by
    /// `CryptoProvider::install_default`.
    ///
    /// With the feature `rocketmq-tls` only.
    #[cfg(feature = "rocketmq-tls")]
    #[must_use]
    pub fn tls(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.tls = Some(TlsFiles::new(authorities.into()));
        self
    }

    /// Does the same as [`tls`](Self::tls), with a certificate (X.509 version 3) for servers that want one, and its
    /// key, which must not be encrypted; both PEM files.
    #[cfg(feature = "rocketmq-tls")]
    #[must_use]
    pub fn mutual_tls(
        mut self,
        authorities: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.tls =
            Some(TlsFiles::new(authorities.into()).with_client_certificate(certificate.into(), key.into()));
        self
    }

    /// Sets the longest delay of a timer message for brokers that do not report their `timerMaxDelaySec`: only
    /// [`RocketMqTimers`](crate::backend::RocketMqTimers) uses it. Default: 3 days, as RocketMQ's.
    ///
    /// A wake-up that a broker refuses as too long goes to the precise backend.
    #[must_use]
    pub fn longest_timer(mut self, longest: Duration) -> Self {
        self.longest_timer = Some(longest);
        self
    }

    /// Connects even if no server can be reached now, so that a service starts while RocketMQ is away.
    ///
    /// Brokers are then used as soon as they are there, and until then the precise backend carries everything.
    /// Connecting fails only for errors that do not go away by themselves, such as wrong credentials. Without this, an
    /// address where no server answers is an error too: better while things are set up.
    #[must_use]
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Checks the options without connecting; connecting does so too.
    pub fn check(&self) -> Result<(), Error> {
        let is_address = |address: &str| {
            address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains(NO_HOST) && port.parse().is_ok_and(|port: u16| port > 0)
            })
        };
        if !self.nameservers.split(';').all(is_address) {
            return Err(Error::invalid(
                "nameservers",
                without_secrets(&self.nameservers),
                "allowed is HOST:PORT, several separated by semicolons",
            ));
        }
        if let Some(credentials) = &self.credentials {
            credentials.check()?;
        }
        #[cfg(feature = "rocketmq-tls")]
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        if !(1..=LARGEST_MESSAGE).contains(&self.max_message_size) {
            return Err(Error::invalid(
                "max_message_size",
                self.max_message_size,
                format!("allowed are 1 to {LARGEST_MESSAGE} bytes"),
            ));
        }
        check_topic(&self.topic)?;
        check_group(&self.group)
    }
}

/// Hides nameservers that cannot be used: they may be meant for something else, and hold a password.
fn without_secrets(nameservers: &str) -> &str {
    let looks_like_one = |address: &str| {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(NO_HOST)
    };
    match nameservers.split(';').all(looks_like_one) {
        true => nameservers,
        false => "(not shown, as it may hold a password)",
    }
}

impl From<&str> for RocketMqOptions {
    fn from(nameservers: &str) -> Self {
        Self::new(nameservers)
    }
}

impl From<String> for RocketMqOptions {
    fn from(nameservers: String) -> Self {
        Self::new(nameservers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_would_refuse_is_refused_before_anything_is_sent() {
        for nameservers in [
            "",
            "host",
            "host:",
            ":9876",
            "host:0",
            "host:99999",
            "a:1;",
            "a:1;b",
        ] {
            let refused = RocketMqOptions::new(nameservers).check();
            assert!(
                matches!(
                    refused,
                    Err(Error::Invalid {
                        field: "nameservers",
                        ..
                    })
                ),
                "{nameservers}"
            );
        }
        for name in ["", "with space", "ü", &"x".repeat(256)] {
            assert!(RocketMqOptions::new("a:1").topic(name).check().is_err(), "{name}");
            assert!(RocketMqOptions::new("a:1").group(name).check().is_err(), "{name}");
        }
        RocketMqOptions::new("a:1;[::1]:9876")
            .topic("wakes")
            .group("g-1")
            .check()
            .unwrap();
    }

    #[test]
    fn of_what_was_meant_for_something_else_no_password_is_shown() {
        for nameservers in [
            "redis://user:s3cret@host:6379",
            "user:s3cret@host:9876;",
            "s3cret@host",
            "user:s3cret",
            "good:9876;user:s3cret",
            "s3cret/9876",
            "password=s3cret",
        ] {
            let refused = RocketMqOptions::new(nameservers).check().unwrap_err().to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
            assert!(refused.contains("allowed is HOST:PORT"), "{refused}");
        }
    }

    #[test]
    fn a_message_has_a_byte_at_least_and_no_more_than_a_request() {
        for (bytes, fits) in [(0, false), (1, true), (16 << 20, true), ((16 << 20) + 1, false)] {
            let options = RocketMqOptions::new("a:1").max_message_size(bytes);
            assert_eq!(options.check().is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn no_key_may_be_empty() {
        for (access_key, secret_key, field) in [("", "s", "access_key"), ("a", "", "secret_key")] {
            let refused = RocketMqOptions::new("a:1")
                .credentials(access_key, secret_key)
                .check();
            assert!(
                matches!(&refused, Err(Error::Invalid { field: named, .. }) if *named == field),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let options = RocketMqOptions::new("a:1")
            .credentials("who", "the-secret")
            .group("");
        let shown = format!("{options:?} {options:#?} {:?}", options.check());
        assert!(shown.contains("who") && !shown.contains("the-secret"), "{shown}");
    }

    #[cfg(feature = "rocketmq-tls")]
    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let certificate = file("certificate", "-----BEGIN CERTIFICATE-----\n");
        let key = file("key", "-----BEGIN RSA PRIVATE KEY-----\n");
        let nothing = file("nothing", "");
        let missing = folder.path().join("missing");
        let options = RocketMqOptions::new("a:1");
        for (options, field) in [
            (options.clone().tls(&missing), "tls authorities"),
            (options.clone().tls(&key), "tls authorities"),
            (
                options.clone().mutual_tls(&certificate, &nothing, &key),
                "tls certificate",
            ),
            (
                options.clone().mutual_tls(&certificate, &certificate, &missing),
                "tls key",
            ),
        ] {
            let refused = options.check();
            assert!(
                matches!(&refused, Err(Error::Invalid { field: named, .. }) if *named == field),
                "{refused:?}"
            );
        }
        options.clone().tls(&certificate).check().unwrap();
        options
            .mutual_tls(&certificate, &certificate, &key)
            .check()
            .unwrap();
    }
}
