//! Reads the request of a message.

mod time;

use delayline::rocketmq::Received;
use delayline::store::Target;
use delayline::{Key, Kind, Shift, TaskId, Timestamp};

use self::time::{due, due_if_held, shift};
use super::origin::id_of;
use crate::serve::config::{Gateway, KeyProperty, USUAL_KIND};

/// The request of a message, by its properties.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) key: Option<Key>,
    /// For a verb without a key: the task of the message that it names.
    pub(super) of: Option<TaskId>,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Schedule {
        target: String,
        due: Timestamp,
        /// Whether it replaces a task of the same name that still waits.
        replace: bool,
    },
    Reschedule(Timestamp),
    Shift(Shift),
    /// The body of the message is that of the one that waits from then on, which is moved if there is a time.
    Edit(Option<Timestamp>),
    Cancel,
    Run,
}

/// The beginning of properties for the gateway.
pub(super) const OURS: &str = "DELAYLINE_";

impl Request {
    /// Reads a message's properties, whose delays count from this time; or says why it is rejected, naming the
    /// property.
    pub(super) fn read(message: &Received, from: Timestamp, gateway: &Gateway) -> Result<Self, String> {
        reply_topic(message, gateway)?;
        let kind = kind(message, gateway)?;
        let action = message
            .properties
            .get("DELAYLINE_ACTION")
            .map_or("schedule", String::as_str);
        let (key, of) = match action {
            "schedule" => (key(message, gateway)?, None),
            "replace" | "reschedule" | "shift" | "edit" | "cancel" | "run" => name(message, gateway, action)?,
            other => {
                return Err(format!(
                    "DELAYLINE_ACTION is {other:?}: allowed are schedule, replace, reschedule, shift, edit, cancel and run"
                ));
            }
        };
        let action = match action {
            word @ ("schedule" | "replace") => {
                // Before anything is cancelled for it.
                body(message)?;
                Action::Schedule {
                    target: target(message, gateway)?,
                    due: due_if_held(message, from)?,
                    replace: word == "replace",
                }
            }
            "reschedule" => Action::Reschedule(due(message, from)?),
            "shift" => Action::Shift(shift(message)?),
            "edit" => {
                body(message)?;
                Action::Edit(time::said(message, from)?)
            }
            "cancel" => time::none(message).map(|()| Action::Cancel)?,
            _ => time::none(message).map(|()| Action::Run)?,
        };
        Ok(Self {
            kind,
            key,
            of,
            action,
        })
    }

    /// Returns the task that it is about, if that may exist.
    pub(super) fn about(&self) -> Option<Target> {
        let by_key = || Some(Target::Key(self.kind.clone(), self.key.clone()?));
        self.of.map(Target::Id).or_else(by_key)
    }
}

/// Returns its body, if that can be kept.
pub(super) fn body(message: &Received) -> Result<&[u8], String> {
    match &message.body {
        Ok(body) if body.is_empty() => Err("its body is empty: allowed are 1 byte and more".to_owned()),
        Ok(body) => Ok(body),
        Err(reason) => Err(format!("its body cannot be kept: {reason}")),
    }
}

/// Returns the kind of its task. A route has one of its own, so that its keys are its own as well.
fn kind(message: &Received, gateway: &Gateway) -> Result<Kind, String> {
    let said = message.properties.get("DELAYLINE_KIND").map(String::as_str);
    if let Some(route) = gateway.routes.get(&message.topic) {
        let own = route.kind(&message.topic);
        return match said {
            Some(said) if said != own => Err(format!(
                "DELAYLINE_KIND is {said:?}: allowed for messages of {} is {own:?}, or nothing",
                message.topic
            )),
            _ => Ok(Kind::from(own)),
        };
    }
    let kind = said.unwrap_or(USUAL_KIND);
    if !gateway.kinds.contains(kind) {
        let allowed: Vec<_> = gateway.kinds.iter().map(String::as_str).collect();
        return Err(format!(
            "DELAYLINE_KIND is {kind:?}: allowed are the kinds of gateway.kinds: {}",
            allowed.join(", ")
        ));
    }
    Ok(Kind::from(kind))
}

/// Returns the sender's own name for the task, if it has one.
fn key(message: &Received, gateway: &Gateway) -> Result<Option<Key>, String> {
    let ours = message.properties.get("DELAYLINE_KEY").map(String::as_str);
    let route = gateway.routes.get(&message.topic);
    let key = match route.and_then(|route| route.key).unwrap_or(gateway.key) {
        KeyProperty::Ours => ours,
        KeyProperty::Keys => ours.or_else(|| message.keys().next()),
    };
    let Some(key) = key.map(Key::from) else {
        return Ok(None);
    };
    key.check().map_err(|error| format!("DELAYLINE_KEY: {error}"))?;
    Ok(Some(key))
}

/// Returns what a verb is about: the task of a key, or of a message.
fn name(message: &Received, gateway: &Gateway, verb: &str) -> Result<(Option<Key>, Option<TaskId>), String> {
    let id = message.properties.get("DELAYLINE_MESSAGE_ID");
    let id = id.filter(|_| verb != "replace");
    if let (Some(id), Some(key)) = (id, message.properties.get("DELAYLINE_KEY")) {
        return Err(format!(
            "DELAYLINE_KEY is {key:?}, and DELAYLINE_MESSAGE_ID is {id:?}: allowed is one of both"
        ));
    }
    if let Some(id) = id {
        return Ok((None, Some(id_of(&message.topic, id))));
    }
    match (key(message, gateway)?, verb) {
        (None, "replace") => Err(
            "DELAYLINE_KEY is missing: allowed with replace is a key, under which what it replaces was scheduled; KEYS is none"
                .to_owned(),
        ),
        (None, _) => Err(format!(
            "DELAYLINE_KEY is missing: allowed with {verb} is the key under which the message was scheduled, or its id as \
             DELAYLINE_MESSAGE_ID, which send gave its sender; KEYS names none"
        )),
        (key, _) => Ok((key, None)),
    }
}

/// Returns the topic for the answer, if there is one.
pub(super) fn reply_topic<'a>(message: &'a Received, gateway: &Gateway) -> Result<Option<&'a str>, String> {
    match message.properties.get(REPLY_TOPIC) {
        Some(topic) if !gateway.may_answer_to(topic) => Err(format!(
            "{REPLY_TOPIC} is {topic:?}: allowed are the topics of gateway.replies"
        )),
        topic => Ok(topic.map(String::as_str)),
    }
}

const REPLY_TOPIC: &str = "DELAYLINE_REPLY_TOPIC";

/// Returns the target of the message: by its route, or by its property.
fn target(message: &Received, gateway: &Gateway) -> Result<String, String> {
    let said = message.properties.get("DELAYLINE_TOPIC");
    let target = gateway.routes.get(&message.topic).map(|route| &route.to);
    match (target, said) {
        (Some(target), None) => Ok(target.clone()),
        (Some(target), Some(said)) if said == target => Ok(target.clone()),
        (Some(target), Some(said)) => Err(format!(
            "DELAYLINE_TOPIC is {said:?}: allowed for messages of {} is {target:?}, or nothing",
            message.topic
        )),
        (None, Some(said)) if gateway.may_publish_to(said) => Ok(said.clone()),
        (None, Some(said)) => Err(format!(
            "DELAYLINE_TOPIC is {said:?}: allowed are the topics of gateway.targets"
        )),
        (None, None) => {
            Err("DELAYLINE_TOPIC is missing: allowed are the topics of gateway.targets".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
