//! What a message asks for.

use std::time::Duration;

use delayline::rocketmq::Received;
use delayline::{Key, Kind, Shift, Timestamp};

use crate::serve::config::{Gateway, USUAL_KIND};
use crate::span::Span;

/// What a message asks for, by its properties.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) key: Option<Key>,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Schedule {
        target: String,
        due: Timestamp,
        /// Whether a task of the same name that still waits takes all this.
        replace: bool,
    },
    Reschedule(Timestamp),
    Shift(Shift),
    Cancel,
    Run,
}

/// The longest that a message may wait: beyond it a time is taken for a mistake, and never for "at once".
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The properties that are meant for the gateway begin so.
pub(super) const OURS: &str = "DELAYLINE_";

impl Request {
    /// Reads a message's properties; or says why nothing can be done for it, naming the property.
    pub(super) fn read(message: &Received, gateway: &Gateway) -> Result<Self, String> {
        let property = |name: &str| message.properties.get(name).map(String::as_str);
        reply_topic(message, gateway)?;
        let kind = property("DELAYLINE_KIND").unwrap_or(USUAL_KIND);
        if !gateway.kinds.contains(kind) {
            let allowed: Vec<_> = gateway.kinds.iter().map(String::as_str).collect();
            return Err(format!(
                "DELAYLINE_KIND is {kind:?}: allowed are the kinds of gateway.kinds: {}",
                allowed.join(", ")
            ));
        }
        let key = property("DELAYLINE_KEY")
            .or_else(|| message.keys().next())
            .map(Key::from);
        if let Some(key) = &key {
            key.check().map_err(|error| format!("DELAYLINE_KEY: {error}"))?;
        }
        let keyed = |action| {
            match key {
            Some(_) => Ok(action),
            None => Err("DELAYLINE_KEY is missing: allowed is the key under which the message was scheduled, here or in KEYS"
                .to_owned()),
        }
        };
        let action = match property("DELAYLINE_ACTION").unwrap_or("schedule") {
            word @ ("schedule" | "replace") => Action::Schedule {
                target: target(message, gateway)?,
                due: due(message)?.ok_or(NO_TIME)?,
                replace: word == "replace",
            },
            "reschedule" => keyed(Action::Reschedule(due(message)?.ok_or(NO_TIME)?))?,
            "shift" => keyed(Action::Shift(shift(message)?))?,
            "cancel" => keyed(timeless(message, Action::Cancel)?)?,
            "run" => keyed(timeless(message, Action::Run)?)?,
            other => {
                return Err(format!(
                    "DELAYLINE_ACTION is {other:?}: allowed are schedule, replace, reschedule, shift, cancel and run"
                ));
            }
        };
        Ok(Self {
            kind: Kind::from(kind),
            key,
            action,
        })
    }
}

/// The topic for the answer, if it is wanted on one.
pub(super) fn reply_topic<'a>(message: &'a Received, gateway: &Gateway) -> Result<Option<&'a str>, String> {
    match message.properties.get(REPLY_TOPIC) {
        Some(topic) if !gateway.may_publish_to(topic) => Err(not_allowed(REPLY_TOPIC, topic)),
        topic => Ok(topic.map(String::as_str)),
    }
}

const REPLY_TOPIC: &str = "DELAYLINE_REPLY_TOPIC";

const NO_TIME: &str =
    "DELAYLINE_AFTER is missing: allowed is one of DELAYLINE_AFTER, DELAYLINE_AT and __STARTDELIVERTIME";

fn not_allowed(property: &str, topic: &str) -> String {
    format!("{property} is {topic:?}: allowed are the topics of gateway.targets")
}

/// Where the message goes: by its topic, or as it says.
fn target(message: &Received, gateway: &Gateway) -> Result<String, String> {
    let said = message.properties.get("DELAYLINE_TOPIC");
    match (gateway.routes.get(&message.topic), said) {
        (Some(target), None) => Ok(target.clone()),
        (Some(target), Some(said)) if said == target => Ok(target.clone()),
        (Some(target), Some(said)) => Err(format!(
            "DELAYLINE_TOPIC is {said:?}: allowed for messages of {} is {target:?}, or nothing",
            message.topic
        )),
        (None, Some(said)) if gateway.may_publish_to(said) => Ok(said.clone()),
        (None, Some(said)) => Err(not_allowed("DELAYLINE_TOPIC", said)),
        (None, None) => {
            Err("DELAYLINE_TOPIC is missing: allowed are the topics of gateway.targets".to_owned())
        }
    }
}

/// How a property says a time.
type ReadTime = fn(&str, stored_at: Timestamp) -> Option<Timestamp>;

/// The properties that say when, and what is allowed in each.
const TIMES: [(&str, ReadTime, &str); 6] = [
    (
        "DELAYLINE_AFTER",
        after,
        "a duration such as 15m or 1h30m, or whole ms",
    ),
    (
        "DELAYLINE_AT",
        |text, _| text.parse().ok(),
        "a time in RFC 3339, such as 2026-12-24T18:00:00Z",
    ),
    // Of Alibaba's and Tencent's clouds. Brokers of Apache's take it for any other property.
    ("__STARTDELIVERTIME", moment, "a time in ms since 1970"),
    ("TIMER_DELIVER_MS", moment, "a time in ms since 1970"),
    (
        "TIMER_DELAY_MS",
        |text, stored_at| Some(stored_at.after(Duration::from_millis(text.parse().ok()?))),
        "whole ms",
    ),
    (
        "TIMER_DELAY_SEC",
        |text, stored_at| Some(stored_at.after(Duration::from_secs(text.parse().ok()?))),
        "whole seconds",
    ),
];

fn moment(text: &str, _: Timestamp) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_millis)
}

fn after(text: &str, stored_at: Timestamp) -> Option<Timestamp> {
    delay(text).map(|delay| stored_at.after(delay))
}

fn delay(text: &str) -> Option<Duration> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok().map(Duration::from_millis),
        false => text.parse().ok().map(|Span(delay)| delay),
    }
}

/// When the message is due; none, if it does not say.
fn due(message: &Received) -> Result<Option<Timestamp>, String> {
    // A broker of 5.x takes timers for itself, and leaves this when it has done so: their time has come.
    let timer_is_over = message.properties.contains_key("TIMER_OUT_MS");
    let mut due = timer_is_over.then_some((message.stored_at, "TIMER_OUT_MS"));
    for (name, read, allowed) in TIMES {
        let Some(text) = message.properties.get(name) else {
            continue;
        };
        if timer_is_over && name.starts_with("TIMER_") {
            continue;
        }
        let time = read(text, message.stored_at)
            .ok_or_else(|| format!("{name} is {text:?}: allowed is {allowed}"))?;
        if time.millis_since(message.stored_at) > i64::try_from(LONGEST.as_millis()).unwrap_or(i64::MAX) {
            return Err(format!("{name} is {text:?}: allowed are up to 366 days"));
        }
        match due {
            Some((_, earlier)) if earlier != "TIMER_OUT_MS" => {
                return Err(format!(
                    "{name} is {text:?}, and there is {earlier}: allowed is one of both"
                ));
            }
            _ => due = Some((time, name)),
        }
    }
    Ok(due.map(|(time, _)| time))
}

/// How much later, or earlier.
fn shift(message: &Received) -> Result<Shift, String> {
    let text = message
        .properties
        .get("DELAYLINE_AFTER")
        .map_or("", String::as_str);
    let by = match text.strip_prefix('-') {
        Some(earlier) => delay(earlier).map(Shift::Earlier),
        None => delay(text.strip_prefix('+').unwrap_or(text)).map(Shift::Later),
    };
    by.filter(|_| !text.is_empty()).ok_or_else(|| {
        format!("DELAYLINE_AFTER is {text:?}: allowed for a shift is a duration with a sign, such as +10m or -30s, or whole ms")
    })
}

/// Refuses a time where it would mean nothing.
fn timeless(message: &Received, action: Action) -> Result<Action, String> {
    match TIMES
        .iter()
        .find(|(name, ..)| message.properties.contains_key(*name))
    {
        Some((name, ..)) if !name.starts_with("TIMER_") => Err(format!(
            "{name} is there: allowed is no time where DELAYLINE_ACTION is cancel or run"
        )),
        _ => Ok(action),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::config::Targets;

    const STORED_AT: i64 = 1_800_000_000_000;

    fn gateway() -> Gateway {
        Gateway {
            targets: Targets::try_from(vec!["order_*".to_owned()]).unwrap(),
            routes: [("orders_later".to_owned(), "orders".to_owned())].into(),
            ..Gateway::default()
        }
    }

    fn message(topic: &str, properties: &[(&str, &str)]) -> Received {
        let mut message = Received::new(topic, "id-1", Timestamp::from_millis(STORED_AT), *b"{}");
        for (name, value) in properties {
            message.properties.insert((*name).to_owned(), (*value).to_owned());
        }
        message
    }

    fn read(properties: &[(&str, &str)]) -> Result<Request, String> {
        Request::read(&message("delayline_in", properties), &gateway())
    }

    /// The due time that these properties give, in ms after the message was stored.
    fn due_in(properties: &[(&str, &str)]) -> i64 {
        let mut all = vec![("DELAYLINE_TOPIC", "order_timeouts")];
        all.extend(properties);
        match read(&all).unwrap().action {
            Action::Schedule { due, .. } => due.as_millis() - STORED_AT,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_way_to_say_a_time_is_understood() {
        for (properties, millis) in [
            (&[("DELAYLINE_AFTER", "15m")][..], 900_000),
            (&[("DELAYLINE_AFTER", "1h30m")], 5_400_000),
            (&[("DELAYLINE_AFTER", "1500")], 1_500),
            (&[("DELAYLINE_AFTER", "0")], 0),
            (&[("DELAYLINE_AT", "2027-01-15T08:00:01.5Z")], 1_500),
            (&[("__STARTDELIVERTIME", "1800000060000")], 60_000),
            // In the past: due now.
            (&[("__STARTDELIVERTIME", "1799999999000")], -1_000),
            (&[("TIMER_DELIVER_MS", "1800000060000")], 60_000),
            (&[("TIMER_DELAY_MS", "250")], 250),
            (&[("TIMER_DELAY_SEC", "2")], 2_000),
            // A broker has waited already.
            (&[("TIMER_DELAY_SEC", "2"), ("TIMER_OUT_MS", "1800000000000")], 0),
            (
                &[
                    ("DELAYLINE_AFTER", "1s"),
                    ("TIMER_DELAY_SEC", "2"),
                    ("TIMER_OUT_MS", "1"),
                ],
                1_000,
            ),
            (&[("DELAYLINE_AFTER", "366d")], 366 * 86_400_000),
        ] {
            assert_eq!(due_in(properties), millis, "{properties:?}");
        }
    }

    #[test]
    fn each_action_is_understood_and_a_key_is_the_first_of_keys() {
        let replace = read(&[
            ("DELAYLINE_TOPIC", "order_x"),
            ("DELAYLINE_AFTER", "1s"),
            ("DELAYLINE_ACTION", "replace"),
            ("KEYS", "order-1 other"),
            ("DELAYLINE_REPLY_TOPIC", "order_answers"),
        ])
        .unwrap();
        assert_eq!(replace.key, Some(Key::from("order-1")));
        assert_eq!(replace.kind.as_str(), "message");
        assert!(matches!(replace.action, Action::Schedule { replace: true, .. }));
        let keyless = read(&[("DELAYLINE_TOPIC", "order_x"), ("DELAYLINE_AFTER", "1s")]).unwrap();
        assert_eq!(keyless.key, None);
        let action = |word, time: Option<&'static str>| {
            let mut properties = vec![
                ("DELAYLINE_ACTION", word),
                ("DELAYLINE_KEY", "k"),
                ("KEYS", "other"),
            ];
            properties.extend(time.map(|time| ("DELAYLINE_AFTER", time)));
            let request = read(&properties).unwrap();
            assert_eq!(request.key, Some(Key::from("k")));
            request.action
        };
        let later = Timestamp::from_millis(STORED_AT + 1_000);
        assert_eq!(action("reschedule", Some("1s")), Action::Reschedule(later));
        assert_eq!(
            action("shift", Some("+10m")),
            Action::Shift(Shift::Later(Duration::from_secs(600)))
        );
        assert_eq!(
            action("shift", Some("500")),
            Action::Shift(Shift::Later(Duration::from_millis(500)))
        );
        assert_eq!(
            action("shift", Some("-30s")),
            Action::Shift(Shift::Earlier(Duration::from_secs(30)))
        );
        assert_eq!(action("cancel", None), Action::Cancel);
        assert_eq!(action("run", None), Action::Run);
    }

    #[test]
    fn a_route_has_one_target() {
        let routed =
            |properties: &[(&str, &str)]| Request::read(&message("orders_later", properties), &gateway());
        let request = routed(&[("DELAYLINE_AFTER", "1s")]).unwrap();
        assert!(matches!(request.action, Action::Schedule { target, .. } if target == "orders"));
        assert!(routed(&[("DELAYLINE_AFTER", "1s"), ("DELAYLINE_TOPIC", "orders")]).is_ok());
        let refused = routed(&[("DELAYLINE_AFTER", "1s"), ("DELAYLINE_TOPIC", "order_x")]).unwrap_err();
        assert!(refused.starts_with("DELAYLINE_TOPIC is \"order_x\""), "{refused}");
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_property() {
        let long = "k".repeat(300);
        for (properties, said) in [
            (&[][..], "DELAYLINE_TOPIC is missing"),
            (&[("DELAYLINE_TOPIC", "order_x")], "DELAYLINE_AFTER is missing"),
            (
                &[("DELAYLINE_TOPIC", "payments"), ("DELAYLINE_AFTER", "1s")],
                "DELAYLINE_TOPIC is \"payments\"",
            ),
            (
                &[("DELAYLINE_TOPIC", "delayline_in"), ("DELAYLINE_AFTER", "1s")],
                "DELAYLINE_TOPIC is \"delayline_in\"",
            ),
            (
                &[("DELAYLINE_TOPIC", "order_x"), ("DELAYLINE_AFTER", "soon")],
                "DELAYLINE_AFTER is \"soon\"",
            ),
            (
                &[("DELAYLINE_TOPIC", "order_x"), ("DELAYLINE_AFTER", "-1s")],
                "DELAYLINE_AFTER is \"-1s\"",
            ),
            (
                &[("DELAYLINE_TOPIC", "order_x"), ("DELAYLINE_AFTER", "")],
                "DELAYLINE_AFTER is \"\"",
            ),
            (
                &[
                    ("DELAYLINE_TOPIC", "order_x"),
                    ("DELAYLINE_AFTER", "99999999999999999999"),
                ],
                "DELAYLINE_AFTER is",
            ),
            (
                &[("DELAYLINE_TOPIC", "order_x"), ("DELAYLINE_AFTER", "367d")],
                "up to 366 days",
            ),
            (
                &[("DELAYLINE_TOPIC", "order_x"), ("DELAYLINE_AT", "tomorrow")],
                "DELAYLINE_AT is \"tomorrow\"",
            ),
            (
                &[
                    ("DELAYLINE_TOPIC", "order_x"),
                    ("__STARTDELIVERTIME", "2028-01-01"),
                ],
                "__STARTDELIVERTIME is",
            ),
            (
                &[
                    ("DELAYLINE_TOPIC", "order_x"),
                    ("__STARTDELIVERTIME", "9800000000000"),
                ],
                "up to 366 days",
            ),
            (
                &[
                    ("DELAYLINE_TOPIC", "order_x"),
                    ("DELAYLINE_AFTER", "1s"),
                    ("__STARTDELIVERTIME", "1800000000000"),
                ],
                "allowed is one of both",
            ),
            (
                &[("DELAYLINE_ACTION", "delete"), ("DELAYLINE_KEY", "k")],
                "DELAYLINE_ACTION is \"delete\"",
            ),
            (&[("DELAYLINE_ACTION", "cancel")], "DELAYLINE_KEY is missing"),
            (
                &[
                    ("DELAYLINE_ACTION", "cancel"),
                    ("DELAYLINE_KEY", "k"),
                    ("DELAYLINE_AFTER", "1s"),
                ],
                "DELAYLINE_AFTER is there",
            ),
            (
                &[("DELAYLINE_ACTION", "reschedule"), ("DELAYLINE_KEY", "k")],
                "DELAYLINE_AFTER is missing",
            ),
            (
                &[("DELAYLINE_ACTION", "shift"), ("DELAYLINE_KEY", "k")],
                "DELAYLINE_AFTER is \"\"",
            ),
            (
                &[
                    ("DELAYLINE_ACTION", "shift"),
                    ("DELAYLINE_KEY", "k"),
                    ("DELAYLINE_AFTER", "--1s"),
                ],
                "DELAYLINE_AFTER is \"--1s\"",
            ),
            (
                &[("DELAYLINE_ACTION", "run"), ("DELAYLINE_KEY", &long)],
                "DELAYLINE_KEY: key is",
            ),
            (
                &[
                    ("DELAYLINE_KIND", "other"),
                    ("DELAYLINE_ACTION", "run"),
                    ("DELAYLINE_KEY", "k"),
                ],
                "DELAYLINE_KIND is \"other\"",
            ),
            (
                &[
                    ("DELAYLINE_REPLY_TOPIC", "answers"),
                    ("DELAYLINE_ACTION", "run"),
                    ("DELAYLINE_KEY", "k"),
                ],
                "DELAYLINE_REPLY_TOPIC is \"answers\"",
            ),
        ] {
            let refused = read(properties).unwrap_err();
            assert!(refused.contains(said), "{properties:?}: {refused}");
        }
    }
}
