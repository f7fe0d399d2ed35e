//! Creates, reads and deletes consumer groups of masters.

use cheetah_string::CheetahString;
use rocketmq_client_rust::ConsumerAdmin;
use rocketmq_protocol::protocol::subscription::subscription_group_config::SubscriptionGroupConfig;
use tokio::time::timeout;

use super::{Admin, GROUP_WITHIN};
use crate::Error;
use crate::rocketmq::failure::{answer, failure};

/// The error of a broker for a consumer group that it does not have.
const NO_GROUP: i32 = 26;

impl Admin {
    /// Creates the consumer group on a master that says that it has none, and creates none by itself.
    pub(super) async fn ensure_group(&self, address: &CheetahString, group: &str) -> Result<(), Error> {
        let is_missing = self.makes_groups(address).await == Some(false)
            && self.has_group(address, group).await == Some(false);
        match is_missing {
            true => self.make_group(address, group).await,
            false => Ok(()),
        }
    }

    /// Says whether a master creates consumer groups by itself, if it answers.
    pub(crate) async fn makes_groups(&self, address: &CheetahString) -> Option<bool> {
        let asked = timeout(GROUP_WITHIN, self.broker_config(address)).await;
        asked.ok()?.ok()?.read("autoCreateSubscriptionGroup")
    }

    /// Says whether a master has the consumer group, if it answers.
    pub(crate) async fn has_group(&self, address: &CheetahString, group: &str) -> Option<bool> {
        let found = self
            .client
            .examine_subscription_group_config(address.clone(), group.into());
        // Brokers before 5.0 do not know the request, and 4.8 does not even say so.
        match timeout(GROUP_WITHIN, found).await.ok()? {
            Ok(_) => Some(true),
            Err(cause) if answer(&cause) == Some(NO_GROUP) => Some(false),
            Err(_) => None,
        }
    }

    /// Returns how far the group has consumed what a master has delivered to the topic: how many messages of all
    /// queues, and how many it has not consumed yet. None, if the master does not answer.
    pub(crate) async fn consumer_progress(
        &self,
        address: &CheetahString,
        topic: &str,
        group: &str,
    ) -> Option<(u64, u64)> {
        let within = u64::try_from(GROUP_WITHIN.as_millis()).ok();
        let asked = ConsumerAdmin::examine_consume_stats(
            &self.client,
            group.into(),
            Some(topic.into()),
            None,
            Some(address.clone()),
            within,
        );
        let stats = timeout(GROUP_WITHIN, asked).await.ok()?.ok()?;
        let queues = stats.offset_table.values();
        let each = queues.map(|queue| {
            let consumed = queue.get_consumer_offset().max(0);
            (
                consumed,
                queue.get_broker_offset().saturating_sub(consumed).max(0),
            )
        });
        let sum = each.fold((0_u64, 0_u64), |sum, (consumed, lag)| {
            (
                sum.0.saturating_add(consumed.unsigned_abs()),
                sum.1.saturating_add(lag.unsigned_abs()),
            )
        });
        Some(sum)
    }

    /// Creates a consumer group on a master, or resets it to the defaults.
    pub(crate) async fn make_group(&self, address: &CheetahString, group: &str) -> Result<(), Error> {
        let config = SubscriptionGroupConfig::new(group.into());
        let made = self
            .client
            .create_and_update_subscription_group_config(address.clone(), config)
            .await;
        made.map_err(|cause| failure("making the consumer group", cause))
    }

    /// Deletes a consumer group from a master, with its offsets.
    pub(crate) async fn delete_group(&self, address: &CheetahString, group: &str) -> Result<(), Error> {
        let deleted = self
            .client
            .delete_subscription_group(address.clone(), group.into(), Some(true))
            .await;
        deleted.map_err(|cause| failure("deleting the consumer group", cause))
    }
}
