//! Which messages are delayed, and where they may go.

mod route;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use delayline::Kind;
use serde::Deserialize;

pub(crate) use self::route::Route;
use crate::reserved;

/// The gateway: ordinary messages that come in on a topic, and go out at their time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gateway {
    /// The topic whose messages say themselves where they go.
    pub(crate) inbox: String,
    /// The consumer group that all servers of one store share.
    pub(crate) group: String,
    /// Where messages may say that they go.
    pub(crate) targets: Targets,
    /// Where messages may say that their answers go.
    pub(crate) replies: Replies,
    /// Topics whose messages all go to one, by their name.
    pub(crate) routes: BTreeMap<String, Route>,
    /// The kinds that messages of the inbox may say they are of.
    pub(crate) kinds: BTreeSet<String>,
    /// Which property of a message is its key.
    pub(crate) key: KeyProperty,
    /// How often a message that is due is published at the most, before it is dead.
    pub(crate) attempts: NonZeroU32,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            inbox: "delayline_in".to_owned(),
            group: "delayline_gateway".to_owned(),
            targets: Targets::default(),
            replies: Replies::default(),
            routes: BTreeMap::new(),
            kinds: [USUAL_KIND.to_owned()].into(),
            key: KeyProperty::default(),
            attempts: USUAL_ATTEMPTS,
        }
    }
}

/// The kind of a message that says none.
pub(crate) const USUAL_KIND: &str = "message";

/// More than anything passing takes: that brokers are away is no attempt.
const USUAL_ATTEMPTS: NonZeroU32 = NonZeroU32::new(100).expect("it is not zero");

impl Gateway {
    /// The topics that are consumed, the inbox first.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.inbox.as_str()).chain(self.routes.keys().map(String::as_str))
    }

    /// The kinds of its tasks, those of routes among them.
    pub(crate) fn all_kinds(&self) -> impl Iterator<Item = String> {
        let of_routes = self.routes.iter().map(|(topic, route)| route.kind(topic));
        self.kinds.iter().cloned().chain(of_routes)
    }

    /// Whether a message may go there that comes from wherever it says.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn may_publish_to(&self, topic: &str) -> bool {
        let has_route = self.routes.values().any(|route| route.to == topic);
        !self.consumes(topic) && (self.targets.allow(topic) || has_route)
    }

    /// Whether an answer may go there.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn may_answer_to(&self, topic: &str) -> bool {
        !self.consumes(topic) && self.replies.0.allow(topic)
    }

    /// What is published there comes in again, and again.
    fn consumes(&self, topic: &str) -> bool {
        topic == self.inbox || self.routes.contains_key(topic)
    }

    /// What is right by itself and wrong beside the rest.
    pub(crate) fn contradiction(&self, kinds: impl Fn(&str) -> bool) -> Option<String> {
        if self.routes.contains_key(&self.inbox) {
            return Some(format!(
                "gateway.routes has {:?}, the inbox: allowed are other topics",
                self.inbox
            ));
        }
        let circle = self.routes.iter().find(|(_, route)| self.consumes(&route.to));
        if let Some((topic, Route { to, .. })) = circle {
            return Some(format!(
                "gateway.routes leads {topic:?} to {to:?}, which the gateway consumes itself: allowed are topics that it \
                 does not"
            ));
        }
        let mut seen = BTreeSet::new();
        let mut wrong = |kind: &str, whose: &str| {
            if let Err(error) = Kind::from(kind).check().and_then(|()| reserved::check(kind)) {
                return Some(format!("{whose}: {error}"));
            }
            if kinds(kind) {
                return Some(format!(
                    "{whose} has {kind:?}, and so have the kinds, with a delivery of their own: allowed is one of both"
                ));
            }
            (!seen.insert(kind.to_owned())).then(|| {
                format!(
                    "{whose} has {kind:?}, and so has the inbox or another route: allowed is for each a kind of its own, as \
                     keys are unique within one"
                )
            })
        };
        let of_inbox = self.kinds.iter().find_map(|kind| wrong(kind, "gateway.kinds"));
        of_inbox.or_else(|| {
            let mut routes = self.routes.iter();
            routes.find_map(|(topic, route)| wrong(&route.kind(topic), &format!("gateway.routes.{topic}")))
        })
    }
}

/// Which property of a message is its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum KeyProperty {
    /// Only the one that is meant for it.
    #[default]
    #[serde(rename = "DELAYLINE_KEY")]
    Ours,
    /// Else the first of those by which messages are found on a broker.
    #[serde(rename = "KEYS")]
    Keys,
}

/// Names of topics, each as it is or, with a `*` at its end, as what they begin with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct Targets(Vec<String>);

#[cfg(feature = "rocketmq")]
impl Targets {
    pub(crate) fn allow(&self, topic: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => topic.starts_with(beginning),
            None => topic == pattern,
        };
        // RocketMQ's own topics have signs or names that no service's should.
        !topic.contains('%') && !is_of_the_brokers(topic) && self.0.iter().any(matches)
    }
}

/// Topics that brokers make for themselves (`TopicValidator`).
#[cfg(feature = "rocketmq")]
fn is_of_the_brokers(topic: &str) -> bool {
    let upper = topic.to_ascii_uppercase();
    upper.starts_with("RMQ_SYS_")
        || upper.ends_with("_REPLY_TOPIC")
        || upper == "SCHEDULE_TOPIC_XXXX"
        || upper == "TBW102"
}

impl TryFrom<Vec<String>> for Targets {
    type Error = String;

    fn try_from(patterns: Vec<String>) -> Result<Self, String> {
        Self::of("gateway.targets", patterns)
    }
}

/// Names of topics for answers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct Replies(Targets);

impl TryFrom<Vec<String>> for Replies {
    type Error = String;

    fn try_from(patterns: Vec<String>) -> Result<Self, String> {
        Targets::of("gateway.replies", patterns).map(Self)
    }
}

impl Targets {
    fn of(setting: &str, patterns: Vec<String>) -> Result<Self, String> {
        let is_pattern = |pattern: &String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            !pattern.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        match patterns.iter().find(|pattern| !is_pattern(pattern)) {
            Some(pattern) => Err(format!(
                "{setting} has {pattern:?}: allowed are names of topics, letters, digits, - and _, and a * at the end \
                 for whatever follows"
            )),
            None => Ok(Self(patterns)),
        }
    }
}

#[cfg(feature = "rocketmq")]
#[cfg(test)]
mod tests {
    use super::*;

    fn gateway() -> Gateway {
        Gateway {
            targets: Targets::try_from(vec!["order_*".to_owned(), "coupon".to_owned()]).unwrap(),
            replies: Replies::try_from(vec!["answers".to_owned(), "delayline_*".to_owned()]).unwrap(),
            routes: [("orders_later".to_owned(), Route::to("orders"))].into(),
            ..Gateway::default()
        }
    }

    #[test]
    fn answers_go_where_they_may_and_messages_do_not() {
        let gateway = gateway();
        assert!(gateway.may_answer_to("answers") && !gateway.may_publish_to("answers"));
        for topic in [
            "order_timeouts",
            "orders",
            "orders_later",
            "delayline_in",
            "payments",
        ] {
            assert!(!gateway.may_answer_to(topic), "{topic}");
        }
        assert!(!Gateway::default().may_answer_to("answers"), "none by default");
    }

    #[test]
    fn each_route_has_a_kind_of_its_own() {
        let mut gateway = gateway();
        assert_eq!(
            gateway.all_kinds().collect::<Vec<_>>(),
            ["message", "message.orders_later"]
        );
        assert_eq!(gateway.contradiction(|_| false), None);
        let said = gateway
            .contradiction(|kind| kind == "message.orders_later")
            .unwrap();
        assert!(said.contains("a delivery of their own"), "{said}");
        for (kind, allowed) in [("message", "a kind of its own"), ("", "1 to 100 bytes")] {
            let kind = Some(kind.to_owned());
            let route = Route {
                kind,
                ..Route::to("orders")
            };
            gateway.routes.insert("later".to_owned(), route);
            let said = gateway.contradiction(|_| false).unwrap();
            assert!(
                said.contains("gateway.routes.later") && said.contains(allowed),
                "{said}"
            );
        }
    }

    #[test]
    fn messages_go_where_they_may_and_never_in_a_circle() {
        let gateway = gateway();
        for topic in ["order_timeouts", "order_", "coupon", "orders"] {
            assert!(gateway.may_publish_to(topic), "{topic}");
        }
        for topic in [
            "orders_later",
            "delayline_in",
            "coupons",
            "payments",
            "order_%RETRY%",
            "",
        ] {
            assert!(!gateway.may_publish_to(topic), "{topic}");
        }
        let everything = Targets::try_from(vec!["*".to_owned()]).unwrap();
        assert!(everything.allow("payments"));
        for topic in [
            "%RETRY%x",
            "DefaultCluster_REPLY_TOPIC",
            "RMQ_SYS_TRACE_TOPIC",
            "SCHEDULE_TOPIC_XXXX",
        ] {
            assert!(!everything.allow(topic), "{topic}");
        }
        assert!(!Gateway::default().may_publish_to("orders"), "none by default");
    }
}
