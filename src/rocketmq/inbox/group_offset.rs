//! Asks a broker for a consumer group's offset in a queue.

use std::time::Duration;

use rocketmq_model::message::MessageQueue;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::queue_order::Queue;
use crate::Error;
use crate::rocketmq::requests::Requests;
use crate::rocketmq::{ClientFactory, transient};

/// How long a nameserver and a broker may take to answer.
const WITHIN: Duration = Duration::from_secs(3);

/// Returns the group's next offset in the queue: messages before it are acknowledged, or the broker no longer has them.
/// None, if the broker does not answer. Blocks while it is asked.
pub(super) fn next_offset(factory: &ClientFactory, group: &str, queue: &Queue) -> Option<i64> {
    let runtime = Handle::try_current().ok()?;
    match runtime.block_on(Box::pin(ask(factory, group, queue))) {
        Ok(offset) => Some(offset),
        Err(error) => {
            tracing::debug!(?queue, %error, "a broker does not report the group's offset in a queue");
            None
        }
    }
}

async fn ask(factory: &ClientFactory, group: &str, queue: &Queue) -> Result<i64, Error> {
    // A copy names the topic that its message was sent to.
    let topic = match queue.is_of_copies {
        true => format!("%RETRY%{group}"),
        false => queue.topic.clone(),
    };
    let queue = MessageQueue::from_parts(topic, queue.broker.clone(), queue.number);
    let requests = Requests::open(factory).await?;
    let asked = timeout(WITHIN, requests.group_offset(group, &queue)).await;
    requests.close().await;
    asked.unwrap_or_else(|_| Err(transient("nameservers and brokers do not answer")))
}
