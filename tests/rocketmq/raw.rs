//! The bare client: sends foreign messages, and inspects what was sent back.

use std::collections::HashMap;
use std::sync::Arc;

use rocketmq_client_rust::{
    BrokerAdmin, ClientConfig, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, ConsumerAdmin, DefaultMQAdminExt, DefaultMQProducer, DefaultMQPushConsumer,
    MQPushConsumer, RouteAdmin, TopicAdmin,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_model::topic::TopicConfig;
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use tokio::sync::mpsc;

/// A consumer's view of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) body: Vec<u8>,
    pub(crate) tag: Option<String>,
    pub(crate) keys: Option<String>,
    pub(crate) properties: HashMap<String, String>,
    /// None, if it was sent back before: then it comes through a queue for such messages.
    pub(crate) queue: Option<i32>,
}

pub(crate) struct Raw {
    owner: RuntimeOwner,
    runtime: Arc<ClientRuntime>,
    config: ClientConfig,
}

impl Raw {
    pub(crate) fn new(nameserver: &str) -> Self {
        let mut config = RuntimeConfig::for_parallelism("raw", 1);
        // Otherwise the client sends back messages that listeners of a busy machine do not take at once.
        config.blocking_lane_policies.metadata_io.max_queue_depth = 4_096;
        config.blocking_lane_policies.metadata_io.queue_timeout = super::SAFETY;
        let owner = RuntimeOwner::plan(config).unwrap().build().unwrap();
        let telemetry = TelemetryRuntimeGuard::noop();
        let scope = owner.root_context().component("raw");
        let runtime =
            ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), telemetry.handle()).unwrap();
        let mut config = ClientConfig::new();
        config.namesrv_addr = Some(nameserver.into());
        config.instance_name = super::unique().into();
        Self {
            owner,
            runtime,
            config,
        }
    }

    /// Sends bodies, with no delay.
    pub(crate) async fn send(&self, topic: &str, bodies: impl IntoIterator<Item = Vec<u8>>) {
        self.send_each(topic, bodies, 0).await;
    }

    /// Sends a body through a level.
    pub(crate) async fn send_delayed(&self, topic: &str, body: Vec<u8>, level: i32) {
        self.send_each(topic, vec![body], level).await;
    }

    async fn send_each(&self, topic: &str, bodies: impl IntoIterator<Item = Vec<u8>>, level: i32) {
        let mut producer = DefaultMQProducer::builder(self.runtime.clone())
            .client_config(self.config.clone())
            .producer_group("raw")
            .build();
        producer.start().await.unwrap();
        for body in bodies {
            let message = Message::builder()
                .topic(topic)
                .body(body)
                .delay_level(level)
                .build()
                .unwrap();
            producer.send(message).await.unwrap().unwrap();
        }
        producer.shutdown().await;
    }

    /// Consumes a topic like any service.
    pub(crate) async fn consume(
        &self,
        topic: &str,
        tags: &str,
    ) -> (DefaultMQPushConsumer, mpsc::UnboundedReceiver<Received>) {
        let mut consumer = DefaultMQPushConsumer::builder(self.runtime.clone())
            .client_config(self.config.clone())
            .consumer_group(format!("consumers-of-{topic}"))
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .build();
        let (tell, told) = mpsc::unbounded_channel();
        consumer.register_message_listener_concurrently(
            move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
                for message in messages {
                    let _ = tell.send(Received {
                        body: message.get_body().map(|body| body.to_vec()).unwrap_or_default(),
                        tag: message.tags().map(|tag| tag.to_string()),
                        keys: message.get_keys().map(|keys| keys.to_string()),
                        properties: message
                            .get_properties()
                            .iter()
                            .map(|(name, value)| (name.to_string(), value.to_string()))
                            .collect(),
                        queue: (message.reconsume_times() == 0).then(|| message.queue_id()),
                    });
                }
                Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
            },
        );
        consumer.subscribe(topic, tags).await.unwrap();
        consumer.start().await.unwrap();
        (consumer, told)
    }

    /// Consumes a topic as a member of a group, and gives its first message back to the broker.
    pub(crate) async fn give_back(&self, topic: &str, group: &str) {
        let mut consumer = DefaultMQPushConsumer::builder(self.runtime.clone())
            .client_config(self.config.clone())
            .consumer_group(group.to_owned())
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .build();
        let (tell, mut told) = mpsc::unbounded_channel();
        consumer.register_message_listener_concurrently(
            move |_: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
                let _ = tell.send(());
                Ok(ConsumeConcurrentlyStatus::ReconsumeLater)
            },
        );
        consumer.subscribe(topic, "*").await.unwrap();
        consumer.start().await.unwrap();
        told.recv().await.unwrap();
        let waiting = async {
            while self.sent_back(group).await == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(super::SAFETY, waiting).await.unwrap();
        consumer.shutdown().await;
    }

    async fn admin(&self) -> DefaultMQAdminExt {
        let mut admin = DefaultMQAdminExt::new(self.runtime.clone());
        *admin.client_config_mut() = self.config.clone();
        admin.start().await.unwrap();
        admin
    }

    /// Changes a setting on every broker, while it runs.
    pub(crate) async fn set_everywhere(&self, name: &str, value: &str) {
        let mut admin = self.admin().await;
        let cluster = RouteAdmin::examine_broker_cluster_info(&admin).await.unwrap();
        for broker in cluster.broker_addr_table.unwrap().values() {
            let settings = HashMap::from([(name.into(), value.into())]);
            admin
                .update_broker_config(broker.broker_addrs()[&0].clone(), settings)
                .await
                .unwrap();
        }
        admin.shutdown().await;
    }

    /// Creates a topic on the only broker.
    pub(crate) async fn make_topic(&self, topic: &str, queues: u32) {
        let mut admin = self.admin().await;
        let cluster = RouteAdmin::examine_broker_cluster_info(&admin).await.unwrap();
        for broker in cluster.broker_addr_table.unwrap().values() {
            let config = TopicConfig::with_queues(topic, queues, queues);
            admin
                .create_and_update_topic_config(broker.broker_addrs()[&0].clone(), config)
                .await
                .unwrap();
        }
        admin.shutdown().await;
    }

    /// Deletes a topic, as its operator can.
    pub(crate) async fn delete_topic(&self, topic: &str) {
        let broker = self.broker().await;
        let mut admin = self.admin().await;
        let brokers = [broker.as_str().into()].into();
        admin.delete_topic_in_broker(brokers, topic.into()).await.unwrap();
        admin.shutdown().await;
        self.forget_topic(topic).await;
    }

    /// Makes the nameservers forget a topic, until its broker next tells them of it.
    pub(crate) async fn forget_topic(&self, topic: &str) {
        let mut admin = self.admin().await;
        let nameservers = RouteAdmin::get_name_server_address_list(&admin).await;
        let nameservers = nameservers.into_iter().collect();
        admin
            .delete_topic_in_name_server(nameservers, None, topic.into())
            .await
            .unwrap();
        admin.shutdown().await;
    }

    /// Deletes a consumer group, as its operator can.
    pub(crate) async fn delete_group(&self, group: &str) {
        let broker = self.broker().await;
        let mut admin = self.admin().await;
        admin
            .delete_subscription_group(broker.as_str().into(), group.into(), Some(true))
            .await
            .unwrap();
        admin.shutdown().await;
    }

    /// The address of a broker.
    pub(crate) async fn broker(&self) -> String {
        let mut admin = self.admin().await;
        let cluster = RouteAdmin::examine_broker_cluster_info(&admin).await.unwrap();
        admin.shutdown().await;
        let brokers = cluster.broker_addr_table.unwrap();
        brokers.values().next().unwrap().broker_addrs()[&0].to_string()
    }

    /// How many queues of a topic the nameservers know.
    pub(crate) async fn queues(&self, topic: &str) -> u32 {
        let mut admin = self.admin().await;
        let route = admin.examine_topic_route_info(topic.into()).await;
        admin.shutdown().await;
        match route {
            Ok(Some(route)) => route
                .queue_datas
                .iter()
                .map(|queues| queues.write_queue_nums())
                .sum(),
            _ => 0,
        }
    }

    /// Says whether the only broker has a consumer group.
    pub(crate) async fn has_group(&self, group: &str) -> bool {
        let mut admin = self.admin().await;
        let cluster = RouteAdmin::examine_broker_cluster_info(&admin).await.unwrap();
        let brokers = cluster.broker_addr_table.unwrap();
        let address = brokers.values().next().unwrap().broker_addrs()[&0].clone();
        let groups = admin.get_all_subscription_group(address, 3_000).await.unwrap();
        admin.shutdown().await;
        groups.get_subscription_group_table().contains_key(group)
    }

    /// Counts the messages that a group ever sent back to the broker, or gave up.
    pub(crate) async fn sent_back(&self, group: &str) -> i64 {
        let mut admin = self.admin().await;
        let mut count = 0;
        for topic in [format!("%RETRY%{group}"), format!("%DLQ%{group}")] {
            // A topic without messages need not exist.
            if let Ok(stats) = admin.examine_topic_stats(topic.into(), None).await {
                count += stats
                    .get_offset_table()
                    .values()
                    .map(|queue| queue.get_max_offset())
                    .sum::<i64>();
            }
        }
        admin.shutdown().await;
        count
    }

    pub(crate) async fn close(self) {
        self.runtime.shutdown().await;
        self.owner.shutdown_tasks().await;
        self.owner.shutdown_background();
    }
}
