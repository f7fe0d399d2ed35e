//! Keeps rejected messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::rocketmq::Received;
use delayline::{Context, Error, Failure, NewTask, Outcome, Scheduler, Task, TaskId};
use serde_json::json;

/// The kind of their tasks.
pub(super) const KIND: &str = "delayline.rejected";

const REASON: &str = "DELAYLINE_REASON";
/// The compression of a body that could not be decompressed.
const COMPRESSION: &str = "DELAYLINE_COMPRESSION";
/// How many characters of a reason are kept: it may repeat what a message has in it.
const LONGEST_REASON: usize = 1_000;

/// Makes the task that keeps a rejected message whole: it becomes dead at once, to be seen.
pub(super) fn task(message: &Received, reason: &str) -> NewTask {
    let raw = message.raw_body();
    let body = match (&message.body, raw) {
        (Err(_), Some((raw, _))) => raw,
        (body, _) => body.as_deref().unwrap_or_default(),
    };
    let properties = message.properties.iter();
    let task = properties.fold(NewTask::from_bytes(KIND, body), |task, (name, value)| {
        task.header(name, value)
    });
    let task = match raw {
        Some((_, Some(compression))) => task.header(COMPRESSION, compression),
        _ => task,
    };
    with_reason(task, message, &shortened(reason))
}

/// Keeps a rejected message that the store has refused to keep as it is, in characters that any store takes: all of it
/// as JSON, its body in Base64, or, where that is too long as well, without its body. An error: the store keeps nothing
/// at all.
pub(super) async fn keep_plainly(
    scheduler: &Scheduler,
    message: &Received,
    id: TaskId,
    reason: &str,
    refused: &Error,
) -> Result<(), Error> {
    let reason = ascii(&shortened(reason));
    let refused = ascii(&shortened(&refused.to_string()));
    let body = message.raw_body().map(|(raw, _)| raw);
    let body = body.unwrap_or_else(|| message.body.as_deref().unwrap_or_default());
    let all = json!({
        "properties": message.properties,
        "body_base64": STANDARD.encode(body),
    });
    let kept = scheduler
        .schedule(with_reason(NewTask::new(KIND, &all), message, &reason).id(id))
        .await;
    match kept {
        Ok(_) => return Ok(()),
        Err(error) if error.is_transient() => return Err(error),
        Err(_) => {}
    }
    let without = format!(
        "{reason}; its body of {} bytes could not be kept: {refused}",
        body.len()
    );
    scheduler
        .schedule(with_reason(NewTask::new(KIND, &()), message, &without).id(id))
        .await?;
    tracing::error!(
        reason = without,
        topic = message.topic,
        message = message.id,
        "a message is rejected, and the store cannot keep its body: fetch it from the broker by its id, before it is deleted there"
    );
    Ok(())
}

/// Adds the reason to the task.
fn with_reason(task: NewTask, message: &Received, reason: &str) -> NewTask {
    task.header(REASON, reason)
        .header("DELAYLINE_INBOX", &message.topic)
        .header("DELAYLINE_MESSAGE_ID", ascii(&shortened(&message.id)))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_REASON) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn ascii(text: &str) -> String {
    let plain = |sign: char| match sign {
        ' '..='~' => sign.to_string(),
        sign => sign.escape_default().to_string(),
    };
    text.chars().map(plain).collect()
}

/// Returns why a message was rejected that this task keeps.
pub(super) fn reason(task: &Task) -> &str {
    task.headers.get(REASON).map_or("rejected", String::as_str)
}

pub(super) async fn end(context: Context) -> Result<Outcome, Failure> {
    Ok(Outcome::Discard(reason(context.task()).to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use delayline::Timestamp;
    use delayline::store::MemoryStore;

    use super::*;

    #[test]
    fn a_reason_that_repeats_a_long_text_is_shortened() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"ü".repeat(2_000));
        assert_eq!(long.chars().count(), LONGEST_REASON + 1);
        assert_eq!(ascii("a\u{0}😀\n"), "a\\u{0}\\u{1f600}\\n");
    }

    #[tokio::test]
    async fn what_cannot_be_kept_as_it_is_is_kept_as_far_as_it_can_be() {
        let store = MemoryStore::new();
        let scheduler = Scheduler::builder(Arc::new(store)).build().unwrap();
        let refused = Error::Store {
            store: "s",
            transient: false,
            source: "no".into(),
        };
        let kept = async |body: Vec<u8>, limit: usize| {
            let mut message = Received::new("in", "1", Timestamp::from_millis(0), body);
            message.properties.insert("KEYS".into(), "a\u{0}".into());
            let id = TaskId::from_bytes(fastrand::u128(..).to_be_bytes());
            let scheduler = scheduler.payload_limit(limit);
            let kept = keep_plainly(&scheduler, &message, id, "no é", &refused).await;
            kept.map(|()| id)
        };
        let found = async |id: TaskId| scheduler.find(id).await.unwrap().unwrap();
        let whole = found(kept(b"{}".to_vec(), 1_000).await.unwrap()).await;
        let all: serde_json::Value = serde_json::from_slice(&whole.payload).unwrap();
        assert_eq!(
            all,
            json!({"properties": {"KEYS": "a\u{0}"}, "body_base64": "e30="})
        );
        assert!(whole.headers.values().all(|value| value.is_ascii()), "{whole:?}");
        let without = found(kept(vec![7; 2_000], 1_000).await.unwrap()).await;
        assert_eq!(without.payload, b"null");
        assert!(
            without.headers[REASON].contains("its body of 2000 bytes could not be kept"),
            "{without:?}"
        );
        // The store is at fault, and not the message.
        assert!(kept(vec![7; 2_000], 1).await.is_err());
    }
}
