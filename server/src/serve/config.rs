//! What the file, the environment and flags say, with every mistake refused by its line, variable or flag.

mod base_path;
mod changes;
mod delivery;
mod endpoint;
mod flags;
mod gateway;
mod http;
mod kind;
mod kind_patterns;
mod listen;
mod otlp;
mod proxies;
mod rocketmq;
mod settings;
mod sources;
mod token;
mod trace_url;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use delayline::Kind;
use delayline::store::History;
use serde::Deserialize;
use toml::Spanned;

pub(crate) use self::changes::Changes;
pub(crate) use self::delivery::{Delivery, Topic};
pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::flags::Flags;
pub(crate) use self::gateway::Gateway;
#[cfg(feature = "rocketmq")]
pub(crate) use self::gateway::{KeyProperty, USUAL_KIND};
#[cfg(all(test, feature = "rocketmq"))]
pub(crate) use self::gateway::{Replies, Route, Targets};
pub(crate) use self::http::Http;
pub(crate) use self::kind::KindConfig;
use self::kind::KindTable;
pub(crate) use self::kind_patterns::KindPatterns;
pub(crate) use self::listen::Listen;
pub(crate) use self::otlp::Otlp;
pub(crate) use self::proxies::Proxies;
pub(crate) use self::rocketmq::RocketMq;
use self::sources::File;
#[cfg(test)]
pub(crate) use self::token::Digest;
pub(crate) use self::token::{Right, Token};
pub(crate) use self::trace_url::TraceUrl;
use super::text::Text;
use super::webhook::Guard;
use crate::reserved;
use crate::span::Span;

/// How a server is set up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// In a file in the working directory unless it is said.
    pub(crate) store: Option<Store>,
    pub(crate) rocketmq: Option<RocketMq>,
    pub(crate) redis: Option<Redis>,
    pub(crate) gateway: Option<Spanned<Gateway>>,
    pub(crate) http: Http,
    pub(crate) worker: Worker,
    pub(crate) webhooks: Webhooks,
    pub(crate) otlp: Option<Otlp>,
    /// What is noted of what happens to tasks: `off`, `changes` or `all`.
    pub(crate) history: Kept,
    kinds: BTreeMap<Spanned<String>, Spanned<KindTable>>,
    /// By which flag or variable a setting was said, by its name.
    #[serde(skip)]
    said_by: BTreeMap<String, String>,
}

/// What is noted of what happens to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Kept(pub(crate) History);

impl Default for Kept {
    fn default() -> Self {
        Self(History::Changes)
    }
}

/// Where the tasks are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Store {
    pub(crate) url: Text,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: Text::plain(USUAL_STORE),
        }
    }
}

/// Where the tasks are unless it is said.
const USUAL_STORE: &str = "sqlite:delayline.db";

/// The Redis that carries what is due within a second, or beyond the levels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    pub(crate) url: Text,
}

/// How the server works on tasks that it delivers itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Worker {
    /// For how long it waits at the end for what is under way.
    pub(crate) stop_timeout: Span,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            stop_timeout: Span(Duration::from_secs(30)),
        }
    }
}

/// What holds for all webhooks.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Webhooks {
    /// Hosts and addresses that are not public, and are reached nevertheless.
    pub(crate) allow: Guard,
}

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("{file} cannot be read: {cause}")]
    Unreadable { file: String, cause: std::io::Error },
    #[error("{file} line {line}: {what}")]
    Line { file: String, line: usize, what: String },
    /// By a flag or a variable of the environment.
    #[error("{by}: {what}")]
    Given { by: String, what: String },
}

impl Config {
    /// What flags, the environment and a file say, in this order.
    pub(crate) fn read(file: Option<&Path>, flags: Flags) -> Result<Self, Mistake> {
        let mut given = sources::environment(std::env::vars_os())?;
        given.extend(flags.given()?);
        let Some(file) = file else {
            let mut all = Self::usual_gateway(&given)?;
            all.append(&mut given);
            return sources::config(None, &all);
        };
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => sources::config(
                Some(File {
                    name: &name,
                    text: &text,
                }),
                &given,
            ),
            Err(cause) => Err(Mistake::Unreadable { file: name, cause }),
        }
    }

    #[cfg(test)]
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, Mistake> {
        sources::config(Some(File { name, text }), &[])
    }

    /// How a setting is named to those who can mend it: the flag or the variable, if one gives it.
    pub(crate) fn name_of(&self, setting: &str) -> String {
        self.said_by
            .get(setting)
            .map_or(setting, String::as_str)
            .to_owned()
    }

    /// Whether a flag or the environment says a setting.
    pub(crate) fn is_given(&self, setting: &str) -> bool {
        self.said_by.contains_key(setting)
    }

    /// What is right by itself and wrong beside the rest.
    fn contradiction(&self) -> Option<(Range<usize>, String)> {
        let listen = &self.http.listen;
        if !listen.get_ref().is_loopback() && self.http.tokens.is_empty() {
            let what = format!(
                "http.listen is \"{}\", which other machines can reach, and http.tokens is empty: allowed without tokens is a \
                 loopback address, such as 127.0.0.1:7700",
                listen.get_ref()
            );
            return Some((listen.span(), what));
        }
        for (at, token) in self.http.tokens.iter().enumerate() {
            let (span, token) = (token.span(), token.get_ref());
            let mut others = self.http.tokens[..at].iter().map(Spanned::get_ref);
            if others.any(|other| other.name == token.name || other.sha256 == token.sha256) {
                let what = format!(
                    "http.tokens has {:?} twice, or its token under two names: allowed is each once",
                    token.name
                );
                return Some((span, what));
            }
        }
        // One alone would be no account, and nothing would say so.
        if let Some(rocketmq) = &self.rocketmq
            && let (Some(key), None) | (None, Some(key)) = (&rocketmq.access_key, &rocketmq.secret_key)
        {
            let what = "rocketmq has access_key or secret_key, and not the other: allowed are both, or none";
            return Some((key.span(), what.to_owned()));
        }
        if let Some(gateway) = &self.gateway {
            let is_kind = |kind: &str| self.kinds.keys().any(|name| name.get_ref() == kind);
            let wrong = match self.rocketmq {
                Some(_) if self.history.0 == History::Off => Some(
                    "gateway is there, and history is \"off\": allowed with a gateway are changes and all, by which it knows \
                     what it has dealt with already"
                        .to_owned(),
                ),
                Some(_) => gateway.get_ref().contradiction(is_kind),
                None => Some(
                    "gateway is there, and there is no [rocketmq]: allowed is a gateway beside brokers (--nameserver)"
                        .to_owned(),
                ),
            };
            if let Some(what) = wrong {
                return Some((gateway.span(), what));
            }
        }
        self.kinds.iter().find_map(|(name, table)| {
            let kind = Kind::from(name.get_ref().as_str());
            if let Err(error) = kind.check().and_then(|()| reserved::check(kind.as_str())) {
                return Some((name.span(), error.to_string()));
            }
            if let Some(wrong) = table.get_ref().contradiction(name.get_ref()) {
                return Some(wrong);
            }
            let deliver = &table.get_ref().deliver;
            let what = match deliver.get_ref() {
                Delivery::Topic(_) if self.rocketmq.is_none() => {
                    "to a topic, and there is no [rocketmq]: allowed then is deliver = \"pull\"".to_owned()
                }
                Delivery::Webhook(Endpoint { url, .. }) => {
                    let refused = self.webhooks.allow.check(url.host()).err()?;
                    format!("to an address that is not public: {refused}")
                }
                Delivery::Pull | Delivery::Topic(_) => return None,
            };
            Some((
                deliver.span(),
                format!("kinds.{:?} is delivered {what}", name.get_ref()),
            ))
        })
    }

    /// The URL of the store.
    pub(crate) fn store_url(&self) -> &str {
        self.store
            .as_ref()
            .map_or(USUAL_STORE, |store| store.url.reveal())
    }

    /// The kinds of messages that the gateway takes.
    pub(crate) fn gateway_kinds(&self) -> BTreeSet<Kind> {
        let gateways = self.gateway.iter();
        let kinds = gateways.flat_map(|gateway| gateway.get_ref().all_kinds());
        kinds.map(Kind::from).collect()
    }

    /// The kinds whose tasks are delivered otherwise than to those who claim them.
    pub(crate) fn delivered_here(&self) -> BTreeSet<Kind> {
        let mut kinds = self.gateway_kinds();
        let is_pulled = |kind: &KindConfig| matches!(kind.deliver, Delivery::Pull);
        kinds.extend(
            self.kinds()
                .into_iter()
                .filter(|kind| !is_pulled(kind))
                .map(|kind| kind.kind),
        );
        kinds
    }

    pub(crate) fn kinds(&self) -> Vec<KindConfig> {
        let kinds = self.kinds.iter();
        kinds
            .map(|(name, table)| table.get_ref().config(name.get_ref()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
