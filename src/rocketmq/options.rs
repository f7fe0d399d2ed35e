//! How to connect.

use crate::{Error, LevelTable};

/// The longest name of a topic that a broker takes.
const LONGEST_TOPIC: usize = 127;
/// The longest name of a consumer group that a broker takes.
const LONGEST_GROUP: usize = 255;

/// Which nameservers, and what to use there: for
/// [`RocketMqBackend::connect`](crate::backend::RocketMqBackend::connect).
///
/// A plain `"HOST:PORT"` is enough where the defaults fit.
#[derive(Clone, Debug)]
pub struct RocketMqOptions {
    pub(crate) nameservers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) levels: Option<LevelTable>,
}

impl RocketMqOptions {
    /// The nameservers as `HOST:PORT`, several separated by semicolons.
    pub fn new(nameservers: impl Into<String>) -> Self {
        Self {
            nameservers: nameservers.into(),
            topic: "delayline_wakes".into(),
            group: "delayline_workers".into(),
            levels: None,
        }
    }

    /// The topic that wake-ups go through. Default `delayline_wakes`; made on every master that lacks it.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// The consumer group that all workers of one service share. Default `delayline_workers`.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// The level table of every broker, so that none is asked for it: for brokers that do not tell.
    ///
    /// It must be what their `messageDelayLevel` says. A wrong one makes wake-ups early or late, and loses none.
    #[must_use]
    pub fn levels(mut self, levels: LevelTable) -> Self {
        self.levels = Some(levels);
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_address = |address: &str| {
            address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0))
        };
        if !self.nameservers.split(';').all(is_address) {
            return Err(Error::invalid(
                "nameservers",
                &self.nameservers,
                "allowed is HOST:PORT, several separated by semicolons",
            ));
        }
        check_name("topic", &self.topic, LONGEST_TOPIC)?;
        check_name("group", &self.group, LONGEST_GROUP)
    }
}

fn check_name(field: &'static str, name: &str, longest: usize) -> Result<(), Error> {
    let fits = (1..=longest).contains(&name.len());
    if fits
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-%|".contains(&byte))
    {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        name,
        format!("allowed are 1 to {longest} letters, digits, and any of _-%|"),
    ))
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
}
