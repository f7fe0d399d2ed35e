//! Messages that nothing can be done for.

use delayline::rocketmq::Received;
use delayline::{Context, Failure, NewTask, Outcome};

/// The kind of their tasks.
pub(super) const KIND: &str = "delayline.rejected";

const REASON: &str = "DELAYLINE_REASON";

/// The task that keeps a message that was rejected: it becomes dead at once, so that somebody sees it.
pub(super) fn task(message: &Received, reason: &str) -> NewTask {
    let body = message.body.as_deref().unwrap_or_default();
    let properties = message.properties.iter();
    let task = properties.fold(NewTask::from_bytes(KIND, body), |task, (name, value)| {
        task.header(name, value)
    });
    task.header(REASON, reason)
        .header("DELAYLINE_INBOX", &message.topic)
        .header("DELAYLINE_MESSAGE_ID", &message.id)
}

pub(super) async fn end(context: Context) -> Result<Outcome, Failure> {
    let reason = context.task().headers.get(REASON);
    Ok(Outcome::Discard(
        reason.map_or("rejected", String::as_str).to_owned(),
    ))
}
