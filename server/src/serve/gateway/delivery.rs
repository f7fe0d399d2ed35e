//! Messages whose time has come.

use delayline::rocketmq::{Message, Publisher, Received};
use delayline::{Context, Failure, NewTask, Outcome, Timestamp};

use super::overtaken;
use super::request::{OURS, Request};
use crate::serve::config::Gateway;
use crate::serve::traces::Place;

// What a task keeps of its message beside the body and the user properties, as headers.
const TOPIC: &str = "DELAYLINE_TOPIC";
const TAG: &str = "DELAYLINE_TAG";
const KEYS: &str = "DELAYLINE_KEYS";
const SHARDING_KEY: &str = "DELAYLINE_SHARDING_KEY";

/// The task that keeps a message until its time.
pub(super) fn task(
    message: &Received,
    body: &[u8],
    request: &Request,
    target: &str,
    due: Timestamp,
) -> NewTask {
    let keys: Vec<_> = message.keys().collect();
    let keys = keys.join(" ");
    let mut task = NewTask::from_bytes(request.kind.clone(), body)
        .at(due)
        .header(TOPIC, target);
    if let Some(key) = &request.key {
        task = task.key(key.clone());
    }
    for (name, value) in [
        (TAG, message.tag()),
        (KEYS, Some(keys.as_str()).filter(|keys| !keys.is_empty())),
        (SHARDING_KEY, message.sharding_key()),
    ] {
        if let Some(value) = value {
            task = task.header(name, value);
        }
    }
    let theirs = message
        .user_properties()
        .filter(|(name, value)| !name.starts_with(OURS) && !value.trim().is_empty());
    for (name, value) in theirs {
        task = task.header(name, value);
    }
    task
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
        // Nothing came that it would have been for.
        return Ok(Outcome::Done);
    }
    let header = |name: &str| task.headers.get(name).map(String::as_str);
    let Some(topic) = header(TOPIC) else {
        return Ok(Outcome::Discard(format!(
            "its header {TOPIC} is missing: allowed are the topics of gateway.targets"
        )));
    };
    // Again: it may have been scheduled over HTTP, or the topics have changed since.
    if !gateway.may_publish_to(topic) {
        return Ok(Outcome::Discard(format!(
            "its header {TOPIC} is {topic:?}: allowed are the topics of gateway.targets"
        )));
    }
    let mut message = Message::new(topic, task.payload.clone());
    if let Some(tag) = header(TAG) {
        message = message.tag(tag);
    }
    for key in header(KEYS).unwrap_or_default().split_whitespace() {
        message = message.key(key);
    }
    if let Some(key) = header(SHARDING_KEY) {
        message = message.sharding_key(key);
    }
    for (name, value) in task.headers.iter().filter(|(name, _)| !name.starts_with(OURS)) {
        message = message.property(name, value);
    }
    if let Some(place) = place {
        // Whoever consumes it takes part in the attempt, and finds beside where the task was made.
        message = message.in_trace(&place.traceparent, place.tracestate.as_deref());
    }
    message = message
        .property("DELAYLINE_ID", task.id.to_string())
        .property("DELAYLINE_DUE_AT", task.planned_at.as_millis().to_string())
        .property("DELAYLINE_ATTEMPT", task.attempt.to_string());
    match publisher.publish(message).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => error.outcome(context),
    }
}
