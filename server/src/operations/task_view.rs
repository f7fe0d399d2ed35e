//! A task as callers see it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::Task;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::depth::{DEEPEST, depth};
use crate::reserved;
use crate::schemas;
use crate::time::Time;

/// A task as others see it: times in RFC 3339, UTC.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskView {
    #[schema(value_type = schemas::TaskId)]
    pub(crate) id: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[schema(value_type = StateName)]
    pub(crate) state: delayline::State,
    pub(crate) due_at: Time,
    planned_at: Time,
    version: u64,
    pub(crate) attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    max_attempts: Option<u32>,
    stalls: u32,
    hops: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    /// Not for callers without the right to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = BTreeMap<String, String>)]
    headers: Option<BTreeMap<String, String>>,
    /// As it is, if it is JSON of up to 120 levels.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// In Base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    created_at: Time,
    updated_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Time>,
}

/// The states of a task, as their names.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = State)]
#[allow(dead_code, reason = "only its description is used")]
pub(crate) enum StateName {
    Scheduled,
    Running,
    Done,
    Dead,
    Cancelled,
}

/// Takes a payload that is there, be it `null`, as one that is given.
pub(crate) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

/// A payload that is JSON, or its bytes in Base64; also of JSON that is so deep that a reader could not read the answer.
fn shown(payload: Vec<u8>) -> (Option<Box<RawValue>>, Option<String>) {
    match serde_json::from_slice(&payload) {
        Ok(json) if depth(&payload) <= DEEPEST => (Some(json), None),
        Ok(_) | Err(_) => (None, Some(STANDARD.encode(payload))),
    }
}

impl TaskView {
    pub(crate) fn without_payload(task: Task) -> Self {
        Self::with(task, |_| (None, None))
    }

    /// The same without its payload.
    pub(crate) fn lean(self) -> Self {
        Self {
            payload: None,
            payload_base64: None,
            ..self
        }
    }

    /// What a caller sees of a task that it may not read: neither its payload nor its headers.
    pub(crate) fn bare(task: Task) -> Self {
        Self {
            headers: None,
            ..Self::without_payload(task)
        }
    }

    /// `shown` gives the payload as it is shown: as JSON, or in Base64.
    fn with(task: Task, shown: impl FnOnce(Vec<u8>) -> (Option<Box<RawValue>>, Option<String>)) -> Self {
        let (payload, payload_base64) = shown(task.payload);
        Self {
            id: task.id.to_string(),
            kind: task.kind.to_string(),
            key: task.key.map(|key| key.to_string()),
            state: task.state,
            due_at: Time(task.due_at),
            planned_at: Time(task.planned_at),
            version: task.version,
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            stalls: task.stalls,
            hops: task.hop,
            owner: task.owner,
            last_error: task.last_error,
            headers: Some(reserved::shown(task.headers)),
            payload,
            payload_base64,
            created_at: Time(task.created_at),
            updated_at: Time(task.updated_at),
            finished_at: task.finished_at.map(Time),
        }
    }
}

impl From<Task> for TaskView {
    fn from(task: Task) -> Self {
        Self::with(task, shown)
    }
}
