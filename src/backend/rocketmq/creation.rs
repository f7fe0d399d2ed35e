//! Creates the topic and the consumer group where masters lack them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::time::{Instant, timeout};

use super::masters::Masters;
use crate::rocketmq::{Admin, RocketMqOptions, transient};

/// How long creating something may take.
const WITHIN: Duration = Duration::from_secs(6);

/// The addresses of the masters that nameservers list.
pub(super) type Listed = BTreeMap<CheetahString, CheetahString>;
/// The queues of the topic by their broker.
pub(super) type Queues = BTreeMap<CheetahString, Vec<MessageQueue>>;

/// Creates the topic and the consumer group where masters lack them, and logs what that means for tasks.
pub(super) struct Creation {
    topic: String,
    group: String,
    masters: Arc<Masters>,
}

impl Creation {
    pub(super) fn new(options: &RocketMqOptions, masters: Arc<Masters>) -> Self {
        Self {
            topic: options.topic.clone(),
            group: options.group.clone(),
            masters,
        }
    }

    /// Creates the topic on masters that lack it, because they are new here or the topic was deleted; says whether
    /// there were any.
    pub(super) async fn topic_where_missing(&self, admin: &Admin, listed: &Listed, queues: &Queues) -> bool {
        let now = Instant::now();
        let mut lacking = listed.clone();
        {
            let known = self.masters.known();
            lacking.retain(|name, _| {
                let is_due = known
                    .get(name)
                    .is_some_and(|master| master.topic_backoff.is_due(now));
                provision(Some(queues.contains_key(name)), is_due) == Provision::Make
            });
            for (name, master) in lacking.keys().filter_map(|name| known.get_key_value(name)) {
                if !master.queues.is_empty() {
                    tracing::warn!(
                        broker = %name, topic = self.topic,
                        "a broker has lost the topic of wake-ups, which is made again; tasks whose wake-ups were in it wait \
                         for the sweep, half a second or more: see who deleted it"
                    );
                }
            }
        }
        if lacking.is_empty() {
            return false;
        }
        let made = timeout(WITHIN, admin.ensure(&lacking, &self.topic, &self.group)).await;
        let made = made.unwrap_or_else(|_| Err(transient("brokers do not answer")));
        if let Err(error) = &made {
            tracing::debug!(%error, "the topic could not be made on brokers that lack it; it is tried again");
        }
        self.masters.change(|known| {
            for name in lacking.keys() {
                if let Some(master) = known.get_mut(name) {
                    // Until it turns out that it has the topic.
                    let is_first = master.topic_backoff.failures() == 0;
                    master.topic_backoff.failed(now);
                    if let Err(error) = &made
                        && is_first
                        && !error.is_transient()
                    {
                        tracing::warn!(
                            broker = %name, topic = self.topic, %error,
                            "a broker lacks the topic and it cannot be made, so nothing is sent to the broker and others, or \
                             the precise backend, carry its wake-ups; it is tried again: make the topic, or let the \
                             account do so"
                        );
                    }
                }
            }
        });
        true
    }

    /// Creates the consumer group again on a master that has lost it; says whether it exists now, as far as the master says.
    pub(super) async fn group(&self, admin: &Admin, name: &CheetahString, is_there: Option<bool>) -> bool {
        let (provision, address) = {
            let known = self.masters.known();
            let Some(master) = known.get(name) else {
                return is_there != Some(false);
            };
            let is_due = master.group_backoff.is_due(Instant::now());
            (provision(is_there, is_due), master.address.clone())
        };
        match provision {
            Provision::Present => return true,
            Provision::Wait => return false,
            Provision::Make => {}
        }
        let made = timeout(WITHIN, admin.make_group(&address, &self.group)).await;
        let made = made.unwrap_or_else(|_| Err(transient("the broker does not answer")));
        let mut known = self.masters.known();
        let Some(master) = known.get_mut(name) else {
            return false;
        };
        let is_first = master.group_backoff.failures() == 0;
        match &made {
            Ok(()) => {
                master.group_backoff.succeeded();
                tracing::warn!(
                    broker = %name, group = self.group,
                    "a broker lacked the consumer group, so nothing was delivered from there; the group is made, and tasks \
                     whose wake-ups were there wait for the sweep, half a second or more: see who deleted it"
                );
            }
            Err(error) if is_first => tracing::warn!(
                broker = %name, group = self.group, %error,
                "a broker lacks the consumer group and it cannot be made, so nothing is delivered from there and it is not \
                 sent to; others, or the precise backend, carry its wake-ups: make the group, or let the account do so"
            ),
            Err(_) => {}
        }
        if made.is_err() {
            master.group_backoff.failed(Instant::now());
        }
        made.is_ok()
    }
}

/// The action for the topic, or the consumer group, of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provision {
    Present,
    /// Create it.
    Make,
    /// It could not be created: wait until the next try is due.
    Wait,
}

/// Decides whether to create something; `is_there` is whether it exists, as far as the servers say.
fn provision(is_there: Option<bool>, is_due: bool) -> Provision {
    match is_there {
        Some(true) | None => Provision::Present,
        Some(false) if is_due => Provision::Make,
        Some(false) => Provision::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_made_again_after_a_pause() {
        for (is_there, is_due, provision) in [
            (Some(true), true, Provision::Present),
            (Some(true), false, Provision::Present),
            (None, true, Provision::Present),
            (None, false, Provision::Present),
            (Some(false), true, Provision::Make),
            (Some(false), false, Provision::Wait),
        ] {
            assert_eq!(
                super::provision(is_there, is_due),
                provision,
                "{is_there:?}, {is_due}"
            );
        }
    }
}
