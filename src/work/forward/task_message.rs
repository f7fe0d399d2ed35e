//! Makes the message of a task.

use super::Forward;
use crate::rocketmq::Message;
use crate::rocketmq::message::{LONGEST_NAME, check_key, is_reserved};
use crate::{Error, Task};

/// The longest value of a property.
const LONGEST_VALUE: usize = 4_096;
/// The beginning of this crate's property names.
const OURS: &str = "DELAYLINE_";
/// The server's header for the requests of a task, which is not forwarded.
const REQUESTS: &str = "DELAYLINE_REQUESTS";

/// Makes the message of a task; or says why there can be none.
pub(super) fn message(forward: &Forward, task: &Task) -> Result<Message, String> {
    let size = task.payload.len();
    let longest = forward.publisher.longest_body();
    if !(1..=longest).contains(&size) {
        return Err(format!("payload of {size} bytes: a message has 1 to {longest}"));
    }
    let id = task.id.to_string();
    let key = task.key.as_ref().map(|key| key.as_str().to_owned());
    let mut message = Message::new(&forward.topic, task.payload.clone()).key(&id);
    // White space would split one key into several.
    if let Some(key) = key.as_ref().filter(|key| check_key(key).is_ok()) {
        message = message.key(key);
    }
    if let Some(tag) = &forward.tag {
        message = message.tag(tag);
    }
    for (name, value) in &forward.properties {
        message = message.property(name, value);
    }
    for (name, value) in task.headers.iter().filter(|(name, _)| *name != REQUESTS) {
        check_property(name, value).map_err(|error| format!("header: {error}"))?;
        message = message.property(name, value);
    }
    for (name, value) in [
        ("ID", Some(id)),
        ("KIND", Some(task.kind.to_string())),
        ("KEY", key.clone()),
        ("ATTEMPT", Some(task.attempt.to_string())),
        ("DUE_AT", Some(task.planned_at.as_millis().to_string())),
    ] {
        if let Some(value) = value {
            message = message.property(format!("{OURS}{name}"), value);
        }
    }
    Ok(match key {
        Some(key) if forward.by_key => message.by_queue_key(key),
        _ => message,
    })
}

/// Refuses text that brokers would misread: control characters separate properties.
pub(super) fn check_property(name: &str, value: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let reserved = is_reserved(name) || name.starts_with(OURS);
    if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_plain) || reserved {
        return Err(Error::invalid(
            "property",
            name,
            format!(
                "allowed are 1 to {LONGEST_NAME} letters, digits and any of _-. that are no name of RocketMQ's own \
                 and do not begin with {OURS}"
            ),
        ));
    }
    // The value may be a secret: it is not repeated.
    if value.trim().is_empty() || value.len() > LONGEST_VALUE || value.contains(char::is_control) {
        return Err(Error::invalid(
            "property",
            name,
            format!("allowed as its value is text of 1 to {LONGEST_VALUE} bytes without control characters"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocketmq::Publisher;
    use crate::rocketmq::message::LONGEST_BODY;
    use crate::store::{MemoryStore, Store, Target};
    use crate::{NewTask, Scheduler};

    fn forward() -> Forward {
        Forward {
            publisher: Publisher::nowhere(),
            topic: "orders".into(),
            tag: None,
            properties: Vec::new(),
            by_key: false,
            saw_topic: true,
        }
    }

    async fn row(task: NewTask) -> Task {
        let store = MemoryStore::new();
        let scheduler = Scheduler::builder(std::sync::Arc::new(store.clone()))
            .payload_limit(2 * LONGEST_BODY)
            .build()
            .unwrap();
        let id = scheduler.schedule(task).await.unwrap().task().id;
        store.find(&Target::Id(id)).await.unwrap().unwrap()
    }

    fn property<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
        message.properties.get(name).map(String::as_str)
    }

    #[tokio::test]
    async fn a_message_has_all_that_its_task_has() {
        let task = NewTask::from_bytes("order.cancel", *b"{\"order\": 42 }")
            .key("order-42")
            .header("traceparent", "00-1-2-3")
            .header("source", "header");
        let task = row(task).await;
        let forward = forward().tag("cancel").property("source", "shop").by_key();
        forward.check().unwrap();
        let message = super::message(&forward, &task).unwrap();
        assert_eq!(message.body, b"{\"order\": 42 }");
        assert_eq!(message.tag.as_deref(), Some("cancel"));
        assert_eq!(message.keys, [task.id.to_string(), "order-42".into()]);
        assert_eq!(message.queue_key.as_deref(), Some("order-42"));
        let due = task.planned_at.as_millis().to_string();
        for (name, value) in [
            ("DELAYLINE_ID", task.id.to_string().as_str()),
            ("DELAYLINE_KIND", "order.cancel"),
            ("DELAYLINE_KEY", "order-42"),
            ("DELAYLINE_ATTEMPT", "0"),
            ("DELAYLINE_DUE_AT", &due),
            ("traceparent", "00-1-2-3"),
            // A task's own takes precedence over a kind's.
            ("source", "header"),
        ] {
            assert_eq!(property(&message, name), Some(value), "{name}");
        }
    }

    #[tokio::test]
    async fn a_key_with_white_space_is_a_property_only_and_one_that_is_not_there_nothing() {
        let spaced = row(NewTask::new("k", &1).key("order 42")).await;
        let message = super::message(&forward(), &spaced).unwrap();
        assert_eq!(message.keys, [spaced.id.to_string()]);
        assert_eq!(property(&message, "DELAYLINE_KEY"), Some("order 42"));
        assert_eq!(message.queue_key, None, "it was not asked for");
        let keyless = row(NewTask::new("k", &1)).await;
        let message = super::message(&forward().by_key(), &keyless).unwrap();
        assert_eq!(property(&message, "DELAYLINE_KEY"), None);
        assert_eq!(message.queue_key, None);
    }

    #[tokio::test]
    async fn what_no_broker_takes_is_no_message() {
        for (task, reason) in [
            (NewTask::from_bytes("k", *b""), "payload of 0 bytes"),
            (
                NewTask::from_bytes("k", vec![0; LONGEST_BODY + 1]),
                "payload of 4194305 bytes",
            ),
            (
                NewTask::new("k", &1).header("KEYS", "x"),
                "header: property is \"KEYS\"",
            ),
            (
                NewTask::new("k", &1).header("a", "x\u{1}y"),
                "header: property is \"a\"",
            ),
        ] {
            let refused = super::message(&forward(), &row(task).await).unwrap_err();
            assert!(refused.starts_with(reason), "{refused}");
        }
        let most = NewTask::from_bytes("k", vec![0; LONGEST_BODY]);
        super::message(&forward(), &row(most).await).unwrap();
    }

    #[test]
    fn tags_and_properties_that_cannot_be_are_refused_by_name() {
        let long = "x".repeat(256);
        for tag in ["", " ", "a b", "a|b", "*", "a\n", "a\u{1}", &long] {
            let error = forward().tag(tag).check().unwrap_err().to_string();
            assert!(error.starts_with("tag is"), "{error}");
        }
        for name in [
            "",
            "a b",
            "KEYS",
            "TAGS",
            "DELAY",
            "TIMER_DELAY_MS",
            "DELAYLINE_X",
            "ü",
            "a\u{2}",
            &long,
        ] {
            let error = forward().property(name, "x").check().unwrap_err().to_string();
            assert!(error.starts_with("property is"), "{error}");
        }
        let long = "x".repeat(LONGEST_VALUE + 1);
        for value in ["", "  ", "secret\u{1}", "secret\n", &long] {
            let error = forward().property("name", value).check().unwrap_err().to_string();
            assert!(error.starts_with("property is \"name\""), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let fine = forward().tag("取消-1").property("trace.parent_id-1", "ü 1");
        fine.check().unwrap();
    }
}
