//! What a message of a task has in it.

use rocketmq_model::common::message::{MessageConst, STRING_HASH_SET};

use super::Forward;
use crate::{Error, Task};

/// The longest body: what brokers take unless they are set otherwise (`maxMessageSize`), and the most that the client
/// sends.
const LONGEST_BODY: usize = 4 * 1_024 * 1_024;
/// The longest tag, and name of a property; of all properties together a broker takes 32 KiB.
const LONGEST_NAME: usize = 255;
/// The longest value of a property.
const LONGEST_VALUE: usize = 4_096;
/// The names of the properties that are this crate's begin so.
const OURS: &str = "DELAYLINE_";

/// A task as a message, before it is one of the client's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    pub(super) body: Vec<u8>,
    pub(super) tag: Option<String>,
    pub(super) keys: Vec<String>,
    pub(super) properties: Vec<(String, String)>,
    /// By which the queue is chosen.
    pub(super) queue_key: Option<String>,
}

impl Parcel {
    /// The message of a task; or why there can be none.
    pub(super) fn new(forward: &Forward, task: &Task) -> Result<Self, String> {
        let size = task.payload.len();
        if !(1..=LONGEST_BODY).contains(&size) {
            return Err(format!(
                "payload of {size} bytes: a message has 1 to {LONGEST_BODY}"
            ));
        }
        let mut properties = forward.properties.clone();
        for (name, value) in &task.headers {
            check_property(name, value).map_err(|error| format!("header: {error}"))?;
            properties.push((name.clone(), value.clone()));
        }
        let id = task.id.to_string();
        let key = task.key.as_ref().map(|key| key.as_str().to_owned());
        for (name, value) in [
            ("ID", Some(id.clone())),
            ("KIND", Some(task.kind.to_string())),
            ("KEY", key.clone()),
            ("ATTEMPT", Some(task.attempt.to_string())),
            ("DUE_AT", Some(task.due_at.as_millis().to_string())),
        ] {
            properties.extend(value.map(|value| (format!("{OURS}{name}"), value)));
        }
        // White space would make several keys of one.
        let findable = key
            .as_ref()
            .filter(|key| !key.contains(char::is_whitespace))
            .cloned();
        Ok(Self {
            body: task.payload.clone(),
            tag: forward.tag.clone(),
            keys: std::iter::once(id).chain(findable).collect(),
            properties,
            queue_key: key.filter(|_| forward.by_key),
        })
    }
}

/// Refuses what no consumer could subscribe to.
pub(super) fn check_tag(tag: &str) -> Result<(), Error> {
    let fits = (1..=LONGEST_NAME).contains(&tag.len()) && tag != "*";
    if fits && !tag.contains(|sign: char| sign.is_whitespace() || sign.is_control() || sign == '|') {
        return Ok(());
    }
    Err(Error::invalid(
        "tag",
        tag,
        format!(
            "allowed are 1 to {LONGEST_NAME} bytes without white space, control characters or |, and not *"
        ),
    ))
}

/// Refuses what brokers would take for something else: control characters are what separates properties.
pub(super) fn check_property(name: &str, value: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let reserved = STRING_HASH_SET.contains(name)
        || name == MessageConst::PROPERTY_INNER_MULTI_DISPATCH
        || name.starts_with(OURS);
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
    // The value may be anybody's secret: it is not repeated.
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
    use std::sync::Arc;

    use super::super::{Answered, Outlet, Unpublished};
    use super::*;
    use crate::store::{MemoryStore, Store};
    use crate::{NewTask, Scheduler, Target};

    #[derive(Debug)]
    struct Nowhere;

    impl Outlet for Nowhere {
        fn publish(&self, _: Parcel) -> Answered<'_, Result<(), Unpublished>> {
            Box::pin(async { Ok(()) })
        }

        fn close(&self) -> Answered<'_, ()> {
            Box::pin(async {})
        }
    }

    fn forward() -> Forward {
        Forward {
            outlet: Arc::new(Nowhere),
            tag: None,
            properties: Vec::new(),
            by_key: false,
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

    fn property<'a>(parcel: &'a Parcel, name: &str) -> Option<&'a str> {
        let mut all = parcel.properties.iter().rev();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
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
        let parcel = Parcel::new(&forward, &task).unwrap();
        assert_eq!(parcel.body, b"{\"order\": 42 }");
        assert_eq!(parcel.tag.as_deref(), Some("cancel"));
        assert_eq!(parcel.keys, [task.id.to_string(), "order-42".into()]);
        assert_eq!(parcel.queue_key.as_deref(), Some("order-42"));
        let due = task.due_at.as_millis().to_string();
        for (name, value) in [
            ("DELAYLINE_ID", task.id.to_string().as_str()),
            ("DELAYLINE_KIND", "order.cancel"),
            ("DELAYLINE_KEY", "order-42"),
            ("DELAYLINE_ATTEMPT", "0"),
            ("DELAYLINE_DUE_AT", &due),
            ("traceparent", "00-1-2-3"),
            // A task's own is nearer than a kind's.
            ("source", "header"),
        ] {
            assert_eq!(property(&parcel, name), Some(value), "{name}");
        }
    }

    #[tokio::test]
    async fn a_key_with_white_space_is_a_property_only_and_one_that_is_not_there_nothing() {
        let spaced = row(NewTask::new("k", &1).key("order 42")).await;
        let parcel = Parcel::new(&forward(), &spaced).unwrap();
        assert_eq!(parcel.keys, [spaced.id.to_string()]);
        assert_eq!(property(&parcel, "DELAYLINE_KEY"), Some("order 42"));
        assert_eq!(parcel.queue_key, None, "it was not asked for");
        let keyless = row(NewTask::new("k", &1)).await;
        let parcel = Parcel::new(&forward().by_key(), &keyless).unwrap();
        assert_eq!(property(&parcel, "DELAYLINE_KEY"), None);
        assert_eq!(parcel.queue_key, None);
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
            let refused = Parcel::new(&forward(), &row(task).await).unwrap_err();
            assert!(refused.starts_with(reason), "{refused}");
        }
        let most = NewTask::from_bytes("k", vec![0; LONGEST_BODY]);
        Parcel::new(&forward(), &row(most).await).unwrap();
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
