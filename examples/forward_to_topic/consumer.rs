//! The service's consumer: the bare client, without delayline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientConfig, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus,
    DefaultMQAdminExt, DefaultMQPushConsumer, MQPushConsumer, RouteAdmin, TopicAdmin,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::topic::TopicConfig;
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use tokio::sync::mpsc;

use crate::Error;

/// Consumes one topic.
pub(crate) struct Consumer {
    owner: RuntimeOwner,
    runtime: Arc<ClientRuntime>,
    client: DefaultMQPushConsumer,
    received: mpsc::UnboundedReceiver<Received>,
}

/// The parts of a message that it uses.
pub(crate) struct Received {
    pub(crate) body: String,
    pub(crate) queue: i32,
    properties: HashMap<String, String>,
}

impl Received {
    pub(crate) fn property(&self, name: &str) -> &str {
        self.properties.get(name).map_or("", String::as_str)
    }
}

/// Creates the topic if it is missing, and consumes its messages with this tag.
pub(crate) async fn start(nameserver: &str, topic: &str, tag: &str) -> Result<Consumer, Error> {
    let owner = RuntimeOwner::plan(RuntimeConfig::for_parallelism("consumer", 2))?.build()?;
    let telemetry = TelemetryRuntimeGuard::noop();
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("consumer"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )?;
    let mut config = ClientConfig::new();
    config.namesrv_addr = Some(nameserver.into());
    config.instance_name = "forward-to-topic".into();
    make_topic(&runtime, &config, topic).await?;

    let mut client = DefaultMQPushConsumer::builder(runtime.clone())
        .client_config(config)
        .consumer_group("order_cancellers")
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .build();
    let (tell, received) = mpsc::unbounded_channel();
    client.register_message_listener_concurrently(
        move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
            for message in messages {
                let properties = message.get_properties().iter();
                let body = message.get_body().map(|body| body.to_vec()).unwrap_or_default();
                // No receiver is left when the example ends.
                let _ = tell.send(Received {
                    body: String::from_utf8_lossy(&body).into_owned(),
                    queue: message.queue_id(),
                    properties: properties
                        .map(|(name, value)| (name.to_string(), value.to_string()))
                        .collect(),
                });
            }
            Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
        },
    );
    client.subscribe(topic, tag).await?;
    client.start().await?;
    Ok(Consumer {
        owner,
        runtime,
        client,
        received,
    })
}

async fn make_topic(runtime: &Arc<ClientRuntime>, config: &ClientConfig, topic: &str) -> Result<(), Error> {
    let mut admin = DefaultMQAdminExt::new(runtime.clone());
    *admin.client_config_mut() = config.clone();
    admin.start().await?;
    let brokers = RouteAdmin::examine_broker_cluster_info(&admin)
        .await?
        .broker_addr_table
        .unwrap_or_default();
    if admin.examine_topic_route_info(topic.into()).await?.is_none() {
        for broker in brokers.values() {
            if let Some(master) = broker.broker_addrs().get(&0) {
                let config = TopicConfig::with_queues(topic, 4, 4);
                admin
                    .create_and_update_topic_config(master.clone(), config)
                    .await?;
            }
        }
        while admin.examine_topic_route_info(topic.into()).await?.is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    admin.shutdown().await;
    Ok(())
}

impl Consumer {
    pub(crate) async fn receive(&mut self) -> Result<Received, Error> {
        let received = self.received.recv().await;
        received.ok_or_else(|| "the consumer has ended".into())
    }

    pub(crate) async fn close(mut self) {
        self.client.shutdown().await;
        self.runtime.shutdown().await;
        self.owner.shutdown_tasks().await;
        self.owner.shutdown_background();
    }
}
