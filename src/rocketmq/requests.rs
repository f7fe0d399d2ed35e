//! Sends requests for which the client has no function.

use std::sync::Arc;

use cheetah_string::CheetahString;
use rocketmq_client_rust::ClientInstanceHandle;
use rocketmq_model::message::MessageQueue;
use rocketmq_protocol::protocol::header::query_consumer_offset_response_header::QueryConsumerOffsetResponseHeader as Offset;
use rocketmq_protocol::protocol::remoting_command::RemotingCommand;
use tokio::runtime::Handle;

use super::client::ClientFactory;
use super::failure::{NO_PERMISSION, denied, failure, transient};
use super::hook::{ROUTE, SUCCESS};
use crate::Error;

/// The number of a master among the brokers of one name.
pub(super) const MASTER: u64 = 0;
/// How long a server may take to answer, in ms.
const ANSWER_WITHIN: u64 = 1_000;
/// The request for a consumer group's offset in a queue (`QUERY_CONSUMER_OFFSET`).
const GROUP_OFFSET: i32 = 14;
/// The request for the beginning of a queue (`GET_MIN_OFFSET`).
const MIN_OFFSET: i32 = 31;
/// The request for the statistics of a topic (`GET_TOPIC_STATS_INFO`).
const TOPIC_STATS: i32 = 202;
/// The answer of a broker for a group that has consumed nothing of a queue.
const NOT_FOUND: i32 = 22;

/// Sends requests that the client has no function for.
///
/// Must be used in the client's runtime only.
pub(super) struct Requests(Arc<ClientInstanceHandle>);

impl Requests {
    pub(super) async fn open(factory: &ClientFactory) -> Result<Self, Error> {
        // The number is only a part of the client's name, which is unique already.
        let client = ClientInstanceHandle::get_or_create(
            &factory.runtime(),
            0,
            factory.config(),
            Some(factory.hook()),
        )
        .map_err(|cause| failure("making a client", cause))?;
        match client.start().await {
            Ok(()) => Ok(Self(Arc::new(client))),
            Err(cause) => {
                client.shutdown_owned().await;
                Err(failure("starting a client", cause))
            }
        }
    }

    pub(super) async fn close(self) {
        self.0.shutdown_owned().await;
    }

    /// Fails with a permanent error if the broker refuses these credentials.
    ///
    /// It is asked for the topic's route, which it does not know, as it is no nameserver: but before it says so, it
    /// checks the account, and admits any that 4.x knows, and any that ACL 2.0 allows anything at all with the topic.
    pub(super) async fn check_access(&self, broker: &CheetahString, topic: &str) -> Result<(), Error> {
        let mut request = RemotingCommand::create_remoting_command(ROUTE);
        request.add_ext_field("topic", topic);
        let asking = "asking a broker for access";
        let answer = self.send(asking, broker, request).await?;
        if answer.code() == NO_PERMISSION {
            return Err(denied(asking, broker));
        }
        Ok(())
    }

    /// Says whether a broker has a topic. It is asked for the topic's statistics, as those before 5.0 cannot be asked for its
    /// settings.
    pub(super) async fn has_topic(&self, broker: &CheetahString, topic: &str) -> Result<bool, Error> {
        let mut request = RemotingCommand::create_remoting_command(TOPIC_STATS);
        request.add_ext_field("topic", topic);
        let answer = self.send("asking a broker for a topic", broker, request).await?;
        Ok(answer.code() == SUCCESS)
    }

    /// Returns a consumer group's next offset in a queue: messages before it are acknowledged, or the broker no longer
    /// has them.
    pub(super) async fn group_offset(&self, group: &str, queue: &MessageQueue) -> Result<i64, Error> {
        let broker = self.master(queue).await?;
        let ask = async |code, group: Option<&str>| {
            let mut request = RemotingCommand::create_remoting_command(code);
            request.add_ext_field("topic", queue.topic_str());
            request.add_ext_field("queueId", queue.queue_id().to_string());
            if let Some(group) = group {
                request.add_ext_field("consumerGroup", group);
            }
            let asking = "asking a broker how far a group is";
            let answer = self.send(asking, &broker, request).await?;
            match answer.code() {
                SUCCESS => answer
                    .decode_command_custom_header::<Offset>()
                    .ok()
                    .and_then(|answer| answer.offset)
                    .ok_or_else(|| transient("a broker's answer has no offset")),
                NOT_FOUND => Ok(0),
                code => Err(transient(format!("{asking} failed: it answered {code}"))),
            }
        };
        let consumed = ask(GROUP_OFFSET, Some(group)).await?;
        Ok(consumed.max(ask(MIN_OFFSET, None).await?))
    }

    /// Returns the address of the master that has the queue.
    async fn master(&self, queue: &MessageQueue) -> Result<CheetahString, Error> {
        let route = self.0.topic_route(queue.topic_str(), ANSWER_WITHIN).await;
        let route = route.map_err(|cause| failure("asking a nameserver for a topic", cause))?;
        let brokers = route.unwrap_or_default().broker_datas;
        brokers
            .iter()
            .find(|broker| broker.broker_name() == queue.broker_name())
            .and_then(|broker| broker.broker_addrs().get(&MASTER).cloned())
            .ok_or_else(|| transient("the nameservers know of no master that has the queue"))
    }

    async fn send(
        &self,
        asking: &'static str,
        broker: &CheetahString,
        request: RemotingCommand,
    ) -> Result<RemotingCommand, Error> {
        let sent = self.0.invoke_remoting(broker, request, ANSWER_WITHIN);
        sent.await.map_err(|cause| failure(asking, cause))
    }
}

/// A caller that is abandoned while a server is silent does not come to close it.
impl Drop for Requests {
    fn drop(&mut self) {
        let client = self.0.clone();
        if let Ok(runtime) = Handle::try_current() {
            // Nothing, if it is closed.
            runtime.spawn(async move { client.shutdown_owned().await });
        }
    }
}
