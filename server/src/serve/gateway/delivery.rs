//! Publishes due messages.

use std::collections::BTreeMap;

use delayline::rocketmq::{Message, Publisher, Received};
use delayline::{Context, Failure, NewTask, Outcome, Task, TaskId, Timestamp};

use super::overtaken;
use super::request::{Action, OURS, Request};
use crate::serve::config::Gateway;
use crate::serve::traces::Place;

// The headers in which a task keeps its message, beside the body and the user properties.
const TOPIC: &str = "DELAYLINE_TOPIC";
const TAG: &str = "DELAYLINE_TAG";
const KEYS: &str = "DELAYLINE_KEYS";
const SHARDING_KEY: &str = "DELAYLINE_SHARDING_KEY";

/// Makes the task that keeps a message until its time.
pub(super) fn task(
    message: &Received,
    body: &[u8],
    request: &Request,
    target: &str,
    due: Timestamp,
) -> NewTask {
    let mut task = NewTask::from_bytes(request.kind.clone(), body).at(due);
    if let Some(key) = &request.key {
        task = task.key(key.clone());
    }
    let headers = headers(message, target).into_iter();
    headers.fold(task, |task, (name, value)| task.header(name, value))
}

/// Makes the headers that keep a message beside its body.
fn headers(message: &Received, target: &str) -> BTreeMap<String, String> {
    let keys: Vec<_> = message.keys().collect();
    let keys = keys.join(" ");
    let ours = [
        (TOPIC, Some(target)),
        (TAG, message.tag()),
        (KEYS, Some(keys.as_str()).filter(|keys| !keys.is_empty())),
        (SHARDING_KEY, message.sharding_key()),
    ];
    let theirs = message
        .user_properties()
        .filter(|(name, value)| !name.starts_with(OURS) && !value.trim().is_empty());
    ours.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .chain(theirs)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Refuses a message that no broker would take when it is due: with everything that is added by then, each as long as
/// it can be.
pub(super) fn check(publisher: &Publisher, received: &Received, request: &Request) -> Result<(), String> {
    let (Action::Schedule { target, due, .. }, Ok(body)) = (&request.action, &received.body) else {
        return Ok(());
    };
    let message = Added::longest(*due).to(outgoing(target, &headers(received, target), body.clone()));
    publisher
        .check(&message)
        .map_err(|error| format!("it could not be published when it is due: {error}"))?;
    check_size(publisher.longest_body(), received, body, &message)
}

/// Refuses a body that the message of a task could not have when it is published: that has its properties.
pub(super) fn check_edited(most: usize, received: &Received, task: &Task, body: &[u8]) -> Result<(), String> {
    let topic = task.headers.get(TOPIC).map_or("", String::as_str);
    let message = Added::longest(task.due_at).to(outgoing(topic, &task.headers, body.to_vec()));
    check_size(most, received, body, &message)
}

/// Refuses a message that is published with the body of a received one, if brokers that have taken that one may not take it.
fn check_size(most: usize, received: &Received, body: &[u8], message: &Message) -> Result<(), String> {
    let size = message.size();
    // Brokers before 5.0 limit the whole message, later ones the body: a broker that has taken more than that is a
    // later one. A compressed message comes in shorter than it is, and goes out so.
    let is_compressed = received.stored_size() < body.len();
    if size > most && !is_compressed && received.stored_size() <= most {
        return Err(format!(
            "it could not be published when it is due: its body of {} bytes, with its properties and those that are added, may \
             have {size} bytes: allowed are {most} (maxMessageSize of brokers, rocketmq.max_message_size of the server)",
            body.len()
        ));
    }
    Ok(())
}

/// Makes the message that a task keeps.
fn outgoing(topic: &str, headers: &BTreeMap<String, String>, body: Vec<u8>) -> Message {
    let header = |name: &str| headers.get(name).map(String::as_str);
    let mut message = Message::new(topic, body);
    if let Some(tag) = header(TAG) {
        message = message.tag(tag);
    }
    for key in header(KEYS).unwrap_or_default().split_whitespace() {
        message = message.key(key);
    }
    if let Some(key) = header(SHARDING_KEY) {
        message = message.sharding_key(key);
    }
    for (name, value) in headers.iter().filter(|(name, _)| !name.starts_with(OURS)) {
        message = message.property(name, value);
    }
    message
}

/// The properties that are added to those of its sender.
struct Added {
    id: TaskId,
    due_at: Timestamp,
    attempt: u32,
    place: Option<Place>,
}

impl Added {
    /// Makes them as long as they can be.
    fn longest(due_at: Timestamp) -> Self {
        Self {
            id: TaskId::from_bytes([0; 16]),
            due_at,
            attempt: u32::MAX,
            place: Some(Place {
                traceparent: "0".repeat(55),
                tracestate: Some("0".repeat(512)),
            }),
        }
    }

    fn to(self, mut message: Message) -> Message {
        if let Some(place) = self.place {
            // Its consumer takes part in the attempt, and also finds where the task was made.
            message = message.in_trace(&place.traceparent, place.tracestate.as_deref());
        }
        message
            .property("DELAYLINE_ID", self.id.to_string())
            .property("DELAYLINE_DUE_AT", self.due_at.as_millis().to_string())
            .property("DELAYLINE_ATTEMPT", self.attempt.to_string())
    }
}

/// Publishes the message of a task.
pub(super) async fn publish(
    publisher: &Publisher,
    gateway: &Gateway,
    context: &Context,
    place: Option<Place>,
) -> Result<Outcome, Failure> {
    let task = context.task();
    if overtaken::is_mark(task) {
        // No message came that it would have been for.
        return Ok(Outcome::Done);
    }
    let header = |name: &str| task.headers.get(name).map(String::as_str);
    let Some(topic) = header(TOPIC) else {
        return Ok(Outcome::Discard(format!(
            "its header {TOPIC} is missing: allowed are the topics of gateway.targets"
        )));
    };
    // Checked again: it may have been scheduled over HTTP, or the topics have changed since.
    if !gateway.may_publish_to(topic) {
        return Ok(Outcome::Discard(format!(
            "its header {TOPIC} is {topic:?}: allowed are the topics of gateway.targets"
        )));
    }
    let added = Added {
        id: task.id,
        due_at: task.planned_at,
        attempt: task.attempt,
        place,
    };
    let message = added.to(outgoing(topic, &task.headers, task.payload.clone()));
    match publisher.publish(message).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => error.outcome(context),
    }
}
