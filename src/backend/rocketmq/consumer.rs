//! Receives messages: the push consumer and its listener.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientResult, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, DefaultMQPushConsumer,
    MQPushConsumer,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;

use super::handover::Handover;
use crate::Error;
use crate::rocketmq::{Base, LISTENERS, RocketMqOptions, failure};

/// How many messages a listener is given at once, which is also as many as a broker gives at once.
const BATCH: u32 = 32;
/// How many messages of one queue the client reads ahead: enough to keep every listener busy.
const READ_AHEAD: u32 = 512;
/// How many of all queues together, which it shares out among them.
const READ_AHEAD_IN_ALL: i32 = 4_096;
/// How many MiB of one queue it reads ahead, the least that it can be told. By itself it may take 100: wake-ups never
/// fill that, but whoever may publish to the topic can send what does.
const READ_AHEAD_MIB: u32 = 1;
/// How many bytes a broker gives at once: some hundred wake-ups. It gives one message at least, however long.
const BATCH_BYTES: u32 = 64 * 1_024;
/// For how long a closing consumer waits for batches that have been received and not yet acknowledged.
const GRACE: Duration = Duration::from_millis(500);

/// Starts a consumer, or takes it down again if that fails.
pub(super) async fn start(
    base: &Base,
    options: &RocketMqOptions,
    handover: Arc<Handover>,
) -> Result<DefaultMQPushConsumer, Error> {
    let mut consumer = DefaultMQPushConsumer::builder(base.runtime())
        .client_config(base.config())
        .rpc_hook(Some(base.hook()))
        .consumer_group(options.group.as_str())
        // A new group must also get what was sent before its first worker started.
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .consume_thread_min(LISTENERS as u32)
        .consume_thread_max(LISTENERS as u32)
        .consume_message_batch_max_size(BATCH)
        .pull_batch_size(BATCH)
        .pull_batch_size_in_bytes(BATCH_BYTES)
        .pull_threshold_for_queue(READ_AHEAD)
        .pull_threshold_for_topic(READ_AHEAD_IN_ALL)
        .pull_threshold_size_for_queue(READ_AHEAD_MIB)
        .await_termination_millis_when_shutdown(GRACE.as_millis() as u64)
        .build();
    consumer.register_message_listener_concurrently(
        move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| listen(&handover, messages),
    );
    let started = match consumer.subscribe(options.topic.as_str(), "*").await {
        Ok(()) => consumer.start().await,
        Err(cause) => Err(cause),
    };
    match started {
        Ok(()) => Ok(consumer),
        Err(cause) => {
            consumer.shutdown().await;
            Err(failure("starting the consumer", cause))
        }
    }
}

/// Holds a thread of the client until the batch is dealt with, and then always answers success.
///
/// "Later" would be 10 s later, on a topic of its own, 16 times, and then never; the sweep is faster and does not end.
fn listen(handover: &Handover, messages: &[&MessageExt]) -> ClientResult<ConsumeConcurrentlyStatus> {
    let bodies = messages
        .iter()
        .map(|message| message.get_body().map(|body| &body[..]));
    // A panic would be taken for "later".
    if catch_unwind(AssertUnwindSafe(|| handover.bring(bodies))).is_err() {
        tracing::error!("the listener for wake-ups panicked; the sweep finds what it held");
    }
    Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
}
