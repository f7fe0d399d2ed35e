//! RocketMQ's client, as it comes: a producer, and plain push consumers.

use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientConfig, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus,
    DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::{BlockingPoolPolicy, RuntimeConfig, RuntimeOwner};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// As many as the library's own consumer has.
const LISTENERS: usize = 32;

/// A bare client.
pub(crate) struct Client {
    owner: RuntimeOwner,
    pub(crate) runtime: Arc<ClientRuntime>,
    pub(crate) config: ClientConfig,
    pub(crate) producer: DefaultMQProducer,
}

impl Client {
    pub(crate) async fn start(nameserver: &str) -> Result<Self, Error> {
        let mut plan = RuntimeConfig::for_parallelism("bare", 2).with_max_blocking_threads(LISTENERS + 16)?;
        plan.blocking_lane_policies.metadata_io = BlockingPoolPolicy {
            name: "bare-listeners".into(),
            max_concurrency: LISTENERS,
            max_queue_depth: 4_096,
            queue_timeout: Duration::from_secs(600),
            task_timeout: Duration::from_secs(600),
            warn_after: Duration::from_secs(600),
        };
        let owner = RuntimeOwner::plan(plan)?.build()?;
        let telemetry = TelemetryRuntimeGuard::noop();
        let runtime = ClientRuntime::try_new(
            owner.root_context().component("bare"),
            ClientRuntimeConfig::default(),
            telemetry.handle(),
        )?;
        let mut config = ClientConfig::new();
        config.namesrv_addr = Some(nameserver.into());
        config.instance_name = format!("bare-{}", std::process::id()).into();
        let mut producer = DefaultMQProducer::builder(runtime.clone())
            .client_config(config.clone())
            .producer_group("bare")
            .build();
        producer.start().await?;
        Ok(Self {
            owner,
            runtime,
            config,
            producer,
        })
    }

    /// Consumes a topic that is there, from its first message on, in a group of its name.
    pub(crate) async fn consume(
        &self,
        topic: &str,
        listen: impl Fn(&[&MessageExt]) + Send + Sync + 'static,
    ) -> Result<DefaultMQPushConsumer, Error> {
        let mut consumer = DefaultMQPushConsumer::builder(self.runtime.clone())
            .client_config(self.config.clone())
            .consumer_group(topic)
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .consume_thread_min(LISTENERS as u32)
            .consume_thread_max(LISTENERS as u32)
            .consume_message_batch_max_size(32)
            .pull_batch_size(32)
            .build();
        consumer.register_message_listener_concurrently(
            move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
                listen(messages);
                Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
            },
        );
        consumer.subscribe(topic, "*").await?;
        consumer.start().await?;
        Ok(consumer)
    }

    pub(crate) async fn close(mut self) {
        self.producer.shutdown().await;
        self.runtime.shutdown().await;
        self.owner.shutdown_tasks().await;
        self.owner.shutdown_background();
    }
}
