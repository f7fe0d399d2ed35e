//! Receives messages: the push consumer and its listener.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, DefaultMQPushConsumer, MQPushConsumer,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;

use super::client::LISTENER_LIMIT;
use super::{ClientFactory, failure};
use crate::Error;

/// How many messages a listener gets at once, which is also as many as a broker sends at once.
const BATCH: u32 = 32;
/// How many messages of one queue the client reads ahead: enough to keep every listener busy.
const READ_AHEAD: u32 = 512;
/// How many messages of all queues together, which it divides among them.
const READ_AHEAD_IN_ALL: i32 = 4_096;
/// How many MiB of one queue it reads ahead, the smallest setting. By default it may take 100: wake-ups never fill
/// that, but any account that may publish to the topic can send messages that do.
const READ_AHEAD_MIB: u32 = 1;
/// How many bytes a broker sends at once: some hundred wake-ups. It sends one message at least, however long.
const BATCH_BYTES: u32 = 64 * 1_024;
/// For how long a closing consumer waits for batches that have been received and not yet acknowledged.
const ACK_WAIT: Duration = Duration::from_millis(500);

/// How many minutes a listener may hold a message, before the client gives it back to the broker: a year.
const CONSUME_TIMEOUT: u64 = LISTENER_LIMIT.as_secs() / 60;
/// How often a message may come again, before a broker gives it up (`%DLQ%`): always, as nothing is given up here.
const REDELIVERIES: i32 = i32::MAX;

/// The topics to consume, and by how many threads.
pub(crate) struct Consumption<'a> {
    pub(crate) group: &'a str,
    pub(crate) topics: &'a [String],
    pub(crate) listeners: usize,
}

/// Holds a thread of the client until a batch is processed, and says whether it was: a batch that was not comes again,
/// after 10 s and more, by a topic of the group's own.
pub(crate) trait Listener: Send + Sync + 'static {
    fn listen(&self, messages: &[&MessageExt]) -> bool;
}

/// Starts a consumer, or takes it down again if that fails.
pub(crate) async fn start(
    factory: &ClientFactory,
    consumption: Consumption<'_>,
    listener: Arc<dyn Listener>,
) -> Result<DefaultMQPushConsumer, Error> {
    let listeners = u32::try_from(consumption.listeners).unwrap_or(u32::MAX);
    let mut consumer = DefaultMQPushConsumer::builder(factory.runtime())
        .client_config(factory.config())
        .rpc_hook(Some(factory.hook()))
        .consumer_group(consumption.group)
        // A new group must also get messages that were sent before its first process started.
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .consume_thread_min(listeners)
        .consume_thread_max(listeners)
        .consume_message_batch_max_size(BATCH)
        .consume_timeout(CONSUME_TIMEOUT)
        .max_reconsume_times(REDELIVERIES)
        .pull_batch_size(BATCH)
        .pull_batch_size_in_bytes(BATCH_BYTES)
        .pull_threshold_for_queue(READ_AHEAD)
        .pull_threshold_for_topic(READ_AHEAD_IN_ALL)
        .pull_threshold_size_for_queue(READ_AHEAD_MIB)
        .await_termination_millis_when_shutdown(ACK_WAIT.as_millis() as u64)
        .build();
    consumer.register_message_listener_concurrently(
        move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
            // The client would treat a panic as "later" as well, and log its text.
            let listened = catch_unwind(AssertUnwindSafe(|| listener.listen(messages)));
            Ok(match listened {
                Ok(true) => ConsumeConcurrentlyStatus::ConsumeSuccess,
                Ok(false) => ConsumeConcurrentlyStatus::ReconsumeLater,
                Err(_) => {
                    tracing::error!(
                        "a listener of the RocketMQ consumer panicked, and its messages come again after 10 s: please \
                         report this as a bug"
                    );
                    ConsumeConcurrentlyStatus::ReconsumeLater
                }
            })
        },
    );
    let started = async {
        for topic in consumption.topics {
            consumer.subscribe(topic.as_str(), "*").await?;
        }
        consumer.start().await
    };
    match started.await {
        Ok(()) => Ok(consumer),
        Err(cause) => {
            consumer.shutdown().await;
            Err(failure("starting the consumer", cause))
        }
    }
}
