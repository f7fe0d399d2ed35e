//! Finds when a message was first stored that was given back to its broker.
//!
//! The message that comes again is a copy, with a store time of its own. The broker still has the first one for some
//! days, and the copy names it; the next best is when its producer made it, by the producer's clock.

use std::time::Duration;

use rocketmq_client_rust::ConsumerAdmin;
use rocketmq_model::common::message::MessageConst;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_protocol::common::message::message_decoder::decode_message_id;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Timestamp;
use crate::rocketmq::ClientFactory;

/// How long a broker may take to answer.
const WITHIN: Duration = Duration::from_secs(3);

/// Returns when a copy was first stored; none for a message that is no copy. Blocks while the broker is asked.
pub(super) fn first_stored_at(factory: &ClientFactory, message: &MessageExt) -> Option<Timestamp> {
    if message.reconsume_times() == 0 {
        return None;
    }
    let asked = Handle::try_current()
        .ok()
        .and_then(|runtime| runtime.block_on(Box::pin(ask(factory, message))));
    Some(asked.unwrap_or_else(|| Timestamp::from_millis(message.born_timestamp())))
}

/// Asks the broker for the first message.
async fn ask(factory: &ClientFactory, message: &MessageExt) -> Option<Timestamp> {
    let mut properties = message.properties().iter();
    let (_, first) =
        properties.find(|(name, _)| name.as_str() == MessageConst::PROPERTY_ORIGIN_MESSAGE_ID)?;
    // From the broker that the copy came from, and no other address that a producer may have written there.
    if decode_message_id(first.as_str()).ok()?.address != message.store_host() {
        return None;
    }
    let mut admin = factory.admin();
    let found = match admin.start().await {
        Ok(()) => {
            let asked =
                ConsumerAdmin::query_message(&admin, "".into(), message.topic().clone(), first.clone());
            timeout(WITHIN, asked).await.ok().and_then(Result::ok)
        }
        Err(_) => None,
    };
    admin.shutdown().await;
    let found = found?;
    Some(Timestamp::from_millis(found.store_timestamp()))
}
