//! Tests which properties are read, and which are refused.

use std::time::Duration;

use super::*;
use crate::serve::config::{Replies, Route, Targets};

const STORED_AT: i64 = 1_800_000_000_000;

fn gateway() -> Gateway {
    Gateway {
        targets: Targets::try_from(vec!["order_*".to_owned()]).unwrap(),
        replies: Replies::try_from(vec!["answers".to_owned()]).unwrap(),
        routes: [("orders_later".to_owned(), Route::to("orders"))].into(),
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
    Request::read(
        &message("delayline_in", properties),
        Timestamp::from_millis(STORED_AT),
        &gateway(),
    )
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
        // A broker has waited already, in a timer or a level.
        (&[("DELAY", "3"), ("REAL_TOPIC", "delayline_in")], 0),
        (&[("DELAY", "3"), ("DELAYLINE_AFTER", "1s")], 1_000),
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
fn each_action_is_understood_and_named_by_a_key_or_a_message() {
    let replace = read(&[
        ("DELAYLINE_TOPIC", "order_x"),
        ("DELAYLINE_AFTER", "1s"),
        ("DELAYLINE_ACTION", "replace"),
        ("DELAYLINE_KEY", "order-1"),
        ("DELAYLINE_REPLY_TOPIC", "answers"),
    ])
    .unwrap();
    assert_eq!(replace.key, Some(Key::from("order-1")));
    assert_eq!(replace.kind.as_str(), "message");
    assert!(matches!(replace.action, Action::Schedule { replace: true, .. }));
    // KEYS are for finding messages on a broker: those of one order have the same.
    let keyless = [
        ("DELAYLINE_TOPIC", "order_x"),
        ("DELAYLINE_AFTER", "1s"),
        ("KEYS", "order-1"),
    ];
    assert_eq!(read(&keyless).unwrap().about(), None);
    let cancel = read(&[("DELAYLINE_ACTION", "cancel"), ("DELAYLINE_MESSAGE_ID", "id-1")]).unwrap();
    assert_eq!(cancel.about(), Some(Target::Id(id_of("delayline_in", "id-1"))));
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
    assert_eq!(
        action("shift", Some("+366d")),
        Action::Shift(Shift::Later(Duration::from_secs(366 * 86_400)))
    );
    assert_eq!(action("edit", None), Action::Edit(None));
    assert_eq!(action("edit", Some("1s")), Action::Edit(Some(later)));
    assert_eq!(action("cancel", None), Action::Cancel);
    assert_eq!(action("run", None), Action::Run);
}

#[test]
fn keys_are_the_property_keys_where_that_is_said() {
    let first = |gateway: &Gateway, topic, properties: &[_]| {
        let mut all = vec![("DELAYLINE_AFTER", "1s"), ("KEYS", "order-1 other")];
        all.extend(properties);
        Request::read(&message(topic, &all), Timestamp::from_millis(STORED_AT), gateway)
            .unwrap()
            .key
    };
    let mut gateway = gateway();
    let route = Route {
        key: Some(KeyProperty::Keys),
        ..Route::to("orders")
    };
    gateway.routes.insert("keyed".to_owned(), route);
    assert_eq!(first(&gateway, "orders_later", &[]), None);
    assert_eq!(first(&gateway, "keyed", &[]), Some(Key::from("order-1")));
    assert_eq!(
        first(&gateway, "keyed", &[("DELAYLINE_KEY", "k")]),
        Some(Key::from("k"))
    );
    gateway.key = KeyProperty::Keys;
    assert_eq!(first(&gateway, "orders_later", &[]), Some(Key::from("order-1")));
    let to = [("DELAYLINE_TOPIC", "order_x")];
    assert_eq!(first(&gateway, "delayline_in", &to), Some(Key::from("order-1")));
    let cancel = [
        ("DELAYLINE_ACTION", "cancel"),
        ("DELAYLINE_MESSAGE_ID", "id-1"),
        ("KEYS", "order-1"),
    ];
    let cancel = Request::read(
        &message("keyed", &cancel),
        Timestamp::from_millis(STORED_AT),
        &gateway,
    )
    .unwrap();
    assert_eq!(cancel.about(), Some(Target::Id(id_of("keyed", "id-1"))));
}

#[test]
fn a_route_has_one_target_and_a_kind_of_its_own() {
    let routed = |properties: &[(&str, &str)]| {
        Request::read(
            &message("orders_later", properties),
            Timestamp::from_millis(STORED_AT),
            &gateway(),
        )
    };
    let request = routed(&[("DELAYLINE_AFTER", "1s")]).unwrap();
    assert!(matches!(&request.action, Action::Schedule { target, .. } if target == "orders"));
    assert_eq!(request.kind.as_str(), "message.orders_later");
    let own = routed(&[
        ("DELAYLINE_AFTER", "1s"),
        ("DELAYLINE_KIND", "message.orders_later"),
    ]);
    assert!(own.is_ok(), "{own:?}");
    // A sender to a route has no right to other senders' messages.
    let refused = routed(&[
        ("DELAYLINE_ACTION", "cancel"),
        ("DELAYLINE_KEY", "k"),
        ("DELAYLINE_KIND", "message"),
    ]);
    assert!(refused.unwrap_err().starts_with("DELAYLINE_KIND is \"message\""));
    let refused = read(&[
        ("DELAYLINE_ACTION", "cancel"),
        ("DELAYLINE_KEY", "k"),
        ("DELAYLINE_KIND", "message.orders_later"),
    ]);
    assert!(refused.unwrap_err().contains("gateway.kinds"));
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
        (
            &[
                ("DELAYLINE_TOPIC", "order_x"),
                ("__STARTDELIVERTIME", "1800000060"),
            ],
            "seconds",
        ),
        (
            &[
                ("DELAYLINE_TOPIC", "order_x"),
                ("TIMER_DELIVER_MS", "1799913599999"),
            ],
            "more than a day past",
        ),
        (
            &[("DELAYLINE_ACTION", "cancel"), ("KEYS", "order-1")],
            "DELAYLINE_MESSAGE_ID, which send gave its sender; KEYS names none",
        ),
        (
            &[
                ("DELAYLINE_ACTION", "replace"),
                ("DELAYLINE_TOPIC", "order_x"),
                ("DELAYLINE_AFTER", "1s"),
                ("KEYS", "order-1"),
                ("DELAYLINE_MESSAGE_ID", "id-1"),
            ],
            "DELAYLINE_KEY is missing",
        ),
        (
            &[
                ("DELAYLINE_ACTION", "cancel"),
                ("DELAYLINE_KEY", "k"),
                ("DELAYLINE_MESSAGE_ID", "id-1"),
            ],
            "allowed is one of both",
        ),
        // A message that was given back to a broker has this as well.
        (
            &[
                ("DELAYLINE_ACTION", "reschedule"),
                ("DELAYLINE_KEY", "k"),
                ("DELAY", "3"),
            ],
            "DELAYLINE_AFTER is missing",
        ),
        (
            &[
                ("DELAYLINE_ACTION", "edit"),
                ("DELAYLINE_KEY", "k"),
                ("DELAYLINE_AFTER", "1s"),
                ("DELAYLINE_AT", "2027-01-15T08:00:01Z"),
            ],
            "allowed is one of both",
        ),
        (&[("DELAYLINE_ACTION", "edit")], "DELAYLINE_KEY is missing"),
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
            &[
                ("DELAYLINE_ACTION", "shift"),
                ("DELAYLINE_KEY", "k"),
                ("DELAYLINE_AFTER", "+366d 1ms"),
            ],
            "DELAYLINE_AFTER is \"+366d 1ms\": allowed are up to 366 days",
        ),
        (
            &[
                ("DELAYLINE_ACTION", "shift"),
                ("DELAYLINE_KEY", "k"),
                ("DELAYLINE_AFTER", "-31622400001"),
            ],
            "up to 366 days",
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
                ("DELAYLINE_REPLY_TOPIC", "order_x"),
                ("DELAYLINE_ACTION", "run"),
                ("DELAYLINE_KEY", "k"),
            ],
            "DELAYLINE_REPLY_TOPIC is \"order_x\": allowed are the topics of gateway.replies",
        ),
    ] {
        let refused = read(properties).unwrap_err();
        assert!(refused.contains(said), "{properties:?}: {refused}");
    }
}
