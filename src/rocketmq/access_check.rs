//! Whether brokers let these credentials in.

use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::ClientInstanceHandle;
use rocketmq_protocol::protocol::remoting_command::RemotingCommand;

use super::client::ClientFactory;
use super::failure::{NO_PERMISSION, denied, failure};
use super::hook::ROUTE;
use crate::Error;

/// For how long a broker may think about a question that it has no answer to.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Asks brokers what changes nothing, to see whether they speak with us.
///
/// Must be closed in the end, and be used in the client's runtime only.
pub(super) struct AccessCheck(ClientInstanceHandle);

impl AccessCheck {
    pub(super) async fn open(factory: &ClientFactory) -> Result<Self, Error> {
        // The number only goes into the client's name, which is like no other already.
        let client = ClientInstanceHandle::get_or_create(
            &factory.runtime(),
            0,
            factory.config(),
            Some(factory.hook()),
        )
        .map_err(|cause| failure("making a client", cause))?;
        match client.start().await {
            Ok(()) => Ok(Self(client)),
            Err(cause) => {
                client.shutdown_owned().await;
                Err(failure("starting a client", cause))
            }
        }
    }

    pub(super) async fn close(self) {
        self.0.shutdown_owned().await;
    }

    /// An error that is not transient, if the broker turns us away.
    ///
    /// It is asked for the topic's route, which it does not know, as it is no nameserver: but before it says so, it
    /// looks at who asks, and lets pass whom 4.x knows, and who by ACL 2.0 may do anything at all with the topic.
    pub(super) async fn check(&self, broker: &CheetahString, topic: &str) -> Result<(), Error> {
        let mut request = RemotingCommand::create_remoting_command(ROUTE);
        request.add_ext_field("topic", topic);
        let answer = self
            .0
            .invoke_remoting(broker, request, ANSWER_WITHIN.as_millis() as u64)
            .await
            .map_err(|cause| failure("asking a broker for access", cause))?;
        if answer.code() == NO_PERMISSION {
            return Err(denied("asking a broker for access", broker));
        }
        Ok(())
    }
}
