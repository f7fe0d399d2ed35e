//! Makes the headers of a webhook.

use std::time::{SystemTime, UNIX_EPOCH};

use delayline::{Key, Task};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::signature::Secrets;
use crate::depth::{DEEPEST, depth};
use crate::reserved::REQUESTS;
use crate::serve::traces::{Place, TRACEPARENT, TRACESTATE};

/// Characters that are encoded in values: those that HTTP does not take, that would be cut off at the ends, and the
/// escape itself.
const VALUE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
/// The same for names.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Makes the headers of an attempt that begins `now`; none, if they are more than HTTP takes.
///
/// Those of the task have names of their own. So a caller that may schedule tasks cannot set the headers that only the
/// server sets, such as the host or the signature.
///
/// In a trace the receiver takes part in it, as with any other caller.
pub(super) fn headers(
    task: &Task,
    secrets: &Secrets,
    now: SystemTime,
    place: Option<Place>,
) -> Option<HeaderMap> {
    let id = task.id.to_string();
    let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = timestamp.as_secs().to_string();
    let name = name(&id, &task.payload);
    let signature = secrets.sign(&name, &timestamp, &task.payload);
    let is_json =
        serde_json::from_slice::<&RawValue>(&task.payload).is_ok() && depth(&task.payload) <= DEEPEST;
    let mut headers = HeaderMap::new();
    let content_type = HeaderValue::from_static(match is_json {
        true => "application/json",
        false => "application/octet-stream",
    });
    headers.insert(CONTENT_TYPE, content_type);
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value = HeaderValue::from_str(value).ok()?;
        headers.try_append(name, value).ok()
    };
    let encoded = |value: &str| utf8_percent_encode(value, VALUE).to_string();
    add("webhook-id", &name)?;
    add("webhook-timestamp", &timestamp)?;
    add("webhook-signature", &signature)?;
    add("delayline-task-id", &id)?;
    add("delayline-kind", &encoded(task.kind.as_str()))?;
    if let Some(key) = task.key.as_ref().map(Key::as_str) {
        add("delayline-key", &encoded(key))?;
    }
    add("delayline-attempt", &task.attempt.to_string())?;
    add("delayline-due-at", &task.due_at.to_string())?;
    if let Some(Place {
        traceparent,
        tracestate,
    }) = place
    {
        add(TRACEPARENT, &traceparent)?;
        if let Some(tracestate) = tracestate {
            add(TRACESTATE, &tracestate)?;
        }
    }
    for (name, value) in task.headers.iter().filter(|(name, _)| *name != REQUESTS) {
        let name = format!("delayline-header-{}", utf8_percent_encode(name, NAME));
        add(&name, &encoded(value))?;
    }
    Some(headers)
}

/// The name of a webhook, the same for every attempt with the same payload: a receiver that drops repeats by it must not drop
/// what has replaced the payload that it knows.
fn name(id: &str, payload: &[u8]) -> String {
    let digest = Sha256::digest(payload);
    let digest = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    format!("{id}.{}", digest.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use delayline::store::MemoryStore;
    use delayline::{NewTask, Scheduler};

    use super::*;

    async fn of(task: NewTask) -> Option<HeaderMap> {
        let scheduler = Scheduler::new(MemoryStore::new());
        let task = scheduler.schedule(task).await.unwrap().task().clone();
        let secrets = Secrets::of(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
        let now = UNIX_EPOCH + Duration::from_millis(1_614_265_330_999);
        headers(&task, &secrets, now, None)
    }

    fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[tokio::test]
    async fn they_tell_of_the_task() {
        let id = "01a206e5-bc4a-79c8-ab58-4c5bb7cf652e";
        let due = "2026-12-24T18:00:00Z";
        let task = NewTask::new("invoice.remind", &7)
            .key("invoice/7 für 10 %")
            .id(id.parse().unwrap())
            .at(due.parse::<delayline::Timestamp>().unwrap())
            .header("traceparent", "00-0af7-b7ad-01")
            .header("Für wen", " a\nb\u{7f} ");
        let headers = of(task).await.unwrap();
        for (name, expected) in [
            ("content-type", "application/json"),
            ("webhook-id", &*format!("{id}.7902699be42c8a8e")),
            ("delayline-task-id", id),
            ("webhook-timestamp", "1614265330"),
            ("delayline-kind", "invoice.remind"),
            ("delayline-key", "invoice/7%20f%C3%BCr%2010%20%25"),
            ("delayline-attempt", "0"),
            ("delayline-due-at", due),
            ("delayline-header-traceparent", "00-0af7-b7ad-01"),
            ("delayline-header-f%c3%bcr%20wen", "%20a%0Ab%7F%20"),
        ] {
            assert_eq!(value(&headers, name), Some(expected), "{name}");
        }
        assert_eq!(headers.len(), 11);
        assert!(value(&headers, "webhook-signature").unwrap().starts_with("v1,"));
    }

    #[tokio::test]
    async fn a_payload_is_json_or_bytes() {
        for (payload, expected) in [
            (b" {\"a\": [1, null]} ".as_slice(), "application/json"),
            (b"null", "application/json"),
            (b"{} {}", "application/octet-stream"),
            (b"\"\xff\"", "application/octet-stream"),
            (b"", "application/octet-stream"),
        ] {
            let headers = of(NewTask::from_bytes("k", payload)).await.unwrap();
            assert_eq!(value(&headers, "content-type"), Some(expected), "{payload:?}");
            assert_eq!(value(&headers, "delayline-key"), None);
        }
    }

    #[tokio::test]
    async fn no_task_says_what_only_the_server_says() {
        let names = ["host", "authorization", "webhook-signature", "content-length"];
        let task = names
            .iter()
            .fold(NewTask::new("k", &1), |task, name| task.header(*name, "forged"));
        let headers = of(task).await.unwrap();
        for name in names {
            assert_ne!(value(&headers, name), Some("forged"), "{name}");
            assert_eq!(
                headers.get_all(name).iter().count(),
                usize::from(name.starts_with("webhook"))
            );
        }
    }

    #[tokio::test]
    async fn more_headers_than_http_takes_are_none() {
        let task = NewTask::new("k", &1).header("ü".repeat(20_000), "");
        assert!(of(task).await.is_none());
    }
}
