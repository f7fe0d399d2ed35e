//! Asks one master in a health check.

use std::collections::HashMap;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use super::consumer_lag::Progress;
use super::decision::Reply;
use super::delay_mode::DelayMode;
use super::delay_support::DelaySupport;
use super::master::GroupCreation;
use crate::rocketmq::{Admin, AskError, BrokerInfo, transient, unreached};

/// When the broker was started, in its runtime statistics.
pub(super) const BOOT: &str = "bootTimestamp";

/// What one master is asked, by its state.
pub(super) struct MasterCheck {
    pub(super) name: CheetahString,
    pub(super) address: CheetahString,
    /// How long each answer may take.
    pub(super) answer_within: Duration,
    pub(super) boot_timestamp: Option<String>,
    /// A queue to ask for, as that is enough to see that the broker answers; none, if its statistics are due.
    pub(super) queue: Option<MessageQueue>,
    /// Whether it is known which delays it supports.
    pub(super) is_known: bool,
    pub(super) group_creation: GroupCreation,
    /// Whether to ask how far the group has consumed its messages.
    pub(super) is_lag_due: bool,
    pub(super) mode: DelayMode,
    pub(super) topic: String,
    pub(super) group: String,
}

/// What a health check has learned of one master.
pub(super) struct Observation {
    pub(super) name: CheetahString,
    /// Its runtime statistics, if it was asked for these.
    pub(super) stats: Result<Option<BrokerInfo>, AskError>,
    /// Which delays it supports, if it was asked.
    pub(super) delay_support: Option<Result<DelaySupport, AskError>>,
    pub(super) group_creation: GroupCreation,
    /// Whether it has the consumer group, if it says so.
    pub(super) has_group: Option<bool>,
    /// How far the group has consumed its messages, if it was asked and answers.
    pub(super) progress: Option<Progress>,
}

impl Observation {
    /// One of a master that has not answered.
    pub(super) fn silent(name: CheetahString, group_creation: GroupCreation) -> Self {
        Self {
            name,
            stats: Err(AskError::Unreachable(transient(
                "its check ended without an answer",
            ))),
            delay_support: None,
            group_creation,
            has_group: None,
            progress: None,
        }
    }

    pub(super) fn reply(&self) -> Reply {
        match &self.stats {
            Ok(_) => Reply::Given,
            Err(AskError::Refused(_)) => Reply::Refused,
            Err(AskError::Unreachable(_)) => Reply::Silent,
        }
    }
}

/// The checks of all masters at once.
#[derive(Default)]
pub(super) struct Checks {
    under_way: JoinSet<Observation>,
    if_they_panic: HashMap<Id, Observation>,
}

impl Checks {
    pub(super) fn spawn(
        &mut self,
        if_it_panics: Observation,
        check: impl Future<Output = Observation> + Send + 'static,
    ) {
        let id = self.under_way.spawn(check).id();
        self.if_they_panic.insert(id, if_it_panics);
    }

    /// Waits for all of them. The other masters are followed though one check has panicked.
    pub(super) async fn join_all(mut self) -> Vec<Observation> {
        let mut observed = Vec::new();
        while let Some(check) = self.under_way.join_next().await {
            observed.extend(check.or_else(|panicked| {
                tracing::error!(%panicked, "a check of a broker panicked, and is repeated: please report this as a bug");
                self.if_they_panic.remove(&panicked.id()).ok_or(panicked)
            }));
        }
        observed
    }
}

impl MasterCheck {
    /// Asks for its runtime statistics, or just for an answer; which delays it supports, if that may have changed; and
    /// for the consumer group.
    pub(super) async fn ask(self, admin: &Admin) -> Observation {
        let Self {
            address,
            answer_within,
            mode,
            ..
        } = self;
        let asked = async {
            match &self.queue {
                Some(queue) => admin.end_of_queue(&address, queue).await.map(|_| None),
                None => admin.runtime_stats(&address).await.map(Some),
            }
        };
        let stats = within(answer_within, &address, asked).await;
        let again = match &stats {
            Ok(None) => false,
            Ok(Some(stats)) => !self.is_known || self.boot_timestamp.as_deref() != stats.get(BOOT),
            Err(AskError::Refused(_)) => !self.is_known,
            Err(AskError::Unreachable(_)) => false,
        };
        let delay_support = match again {
            true => Some(within(answer_within, &address, mode.ask(admin, &address)).await),
            false => None,
        };
        let mut observation = Observation {
            name: self.name,
            delay_support,
            group_creation: self.group_creation,
            has_group: None,
            progress: None,
            stats,
        };
        if observation.reply() == Reply::Silent {
            return observation;
        }
        if observation.group_creation == GroupCreation::Unknown {
            observation.group_creation = match admin.makes_groups(&address).await {
                Some(false) => GroupCreation::Manual,
                _ => GroupCreation::Automatic,
            };
        }
        if observation.group_creation == GroupCreation::Manual {
            observation.has_group = admin.has_group(&address, &self.group).await;
            // A master that cannot say it is not asked again and again.
            observation.group_creation = observation
                .has_group
                .map_or(GroupCreation::Automatic, |_| GroupCreation::Manual);
        }
        if self.is_lag_due {
            let progress = admin.consumer_progress(&address, &self.topic, &self.group).await;
            observation.progress = progress.map(|(consumed, lag)| Progress { consumed, lag });
        }
        observation
    }
}

/// Gives the master at an address only so much time to answer.
pub(super) async fn within<T>(
    limit: Duration,
    address: &str,
    request: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    timeout(limit, request).await.unwrap_or_else(|_| {
        let late = transient(format!("it took more than {limit:?}"));
        Err(AskError::Unreachable(unreached(address, late)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_check_that_panics_is_as_good_as_one_without_an_answer_and_ends_no_other() {
        let silent = |name: &'static str| Observation::silent(name.into(), GroupCreation::Manual);
        let mut checks = Checks::default();
        checks.spawn(silent("a"), async { panic!("no such answer") });
        checks.spawn(silent("b"), async move {
            Observation {
                stats: Ok(None),
                ..silent("b")
            }
        });
        let mut observed = checks.join_all().await;
        observed.sort_by_key(|observed| observed.name.clone());
        let told = observed.iter().map(|observed| {
            let Observation {
                name, group_creation, ..
            } = observed;
            (name.as_str(), observed.reply(), *group_creation)
        });
        let manual = GroupCreation::Manual;
        assert_eq!(
            told.collect::<Vec<_>>(),
            [("a", Reply::Silent, manual), ("b", Reply::Given, manual)]
        );
    }
}
