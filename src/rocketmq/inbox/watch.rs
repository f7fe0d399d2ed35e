//! Watches which brokers answer.

use std::collections::BTreeSet;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::DefaultMQProducer;
use rocketmq_model::message::MessageQueue;
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::rocketmq::{Admin, ClientFactory, is_refusal};

/// How often brokers are asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long one may take to answer.
const WITHIN: Duration = Duration::from_millis(500);
/// How long nameservers and brokers may take together.
const ALL_WITHIN: Duration = Duration::from_secs(5);
/// The producer group of the clients that only ask.
const GROUP: &str = "delayline_inbox_watch";

/// Asks the brokers of topics every second whether they answer.
pub(super) struct Watch {
    factory: ClientFactory,
    topics: Vec<String>,
    clients: Option<Clients>,
    presence: Presence,
}

/// Which brokers are there.
#[derive(Default)]
struct Presence {
    /// None before the first check.
    present: Option<BTreeSet<CheetahString>>,
    /// Those whose answer was late the last time.
    late: BTreeSet<CheetahString>,
}

/// The clients for the checks.
struct Clients {
    admin: Admin,
    producer: DefaultMQProducer,
}

impl Watch {
    pub(super) fn new(factory: ClientFactory, topics: Vec<String>) -> Self {
        Self {
            factory,
            topics,
            clients: None,
            presence: Presence::default(),
        }
    }

    /// Waits until a broker answers that did not the last time.
    pub(super) async fn until_a_broker_comes_back(&mut self) {
        loop {
            sleep(EVERY).await;
            // If no nameserver answers, that says nothing about brokers.
            if let Ok(Ok((answering, late))) = timeout(ALL_WITHIN, self.ask()).await
                && self.presence.has_come_back(answering, late)
            {
                return;
            }
        }
    }

    /// Returns the brokers that answer for a queue of any of the topics, and those that take too long.
    async fn ask(&mut self) -> Result<(BTreeSet<CheetahString>, BTreeSet<CheetahString>), Error> {
        let mut clients = match self.clients.take() {
            Some(clients) => clients,
            None => Clients {
                admin: Admin::open(&self.factory).await?,
                producer: self.factory.producer(GROUP, WITHIN).await?,
            },
        };
        let queues = self.queues(&clients.admin).await;
        let (mut answering, mut late) = (BTreeSet::new(), BTreeSet::new());
        let mut all_answer = queues.is_ok();
        for queue in queues.as_deref().unwrap_or_default() {
            let answers = match timeout(WITHIN, clients.producer.max_offset(queue)).await {
                Ok(Ok(_)) => true,
                // Not every account may ask.
                Ok(Err(cause)) => is_refusal(&cause),
                Err(_) => {
                    late.insert(queue.broker_name().clone());
                    false
                }
            };
            all_answer &= answers;
            if answers {
                answering.insert(queue.broker_name().clone());
            }
        }
        if all_answer {
            self.clients = Some(clients);
        } else {
            // Clients without an answer remember that for half a minute.
            clients.admin.close().await;
            clients.producer.shutdown().await;
        }
        queues.map(|_| (answering, late))
    }

    /// Returns one queue of each broker.
    async fn queues(&self, admin: &Admin) -> Result<Vec<MessageQueue>, Error> {
        let mut brokers = BTreeSet::new();
        let mut queues = Vec::new();
        for topic in &self.topics {
            for (broker, of_broker) in admin.queues(topic).await? {
                if let Some(queue) = of_broker.into_iter().next()
                    && brokers.insert(broker)
                {
                    queues.push(queue);
                }
            }
        }
        Ok(queues)
    }
}

impl Presence {
    /// Records which brokers answered, and whose answer was late. Says whether a broker answered that was away the last
    /// time.
    ///
    /// One late answer is no absence: a busy machine is late, too.
    fn has_come_back(
        &mut self,
        mut answering: BTreeSet<CheetahString>,
        late: BTreeSet<CheetahString>,
    ) -> bool {
        let before = self.present.take();
        let has_come_back = before.as_ref().is_some_and(|before| !answering.is_subset(before));
        let once = late.difference(&self.late);
        let was_present =
            |broker: &&CheetahString| before.as_ref().is_none_or(|before| before.contains(*broker));
        answering.extend(once.filter(was_present).cloned());
        self.present = Some(answering);
        self.late = late;
        has_come_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(names: &[&'static str]) -> BTreeSet<CheetahString> {
        names
            .iter()
            .map(|name| CheetahString::from_static_str(name))
            .collect()
    }

    /// For each check: which answer, which are late, and whether one has come back.
    #[test]
    fn a_broker_comes_back_that_was_gone_or_late_twice() {
        let mut presence = Presence::default();
        let asks: [(&[&str], &[&str], bool); 9] = [
            (&["a", "b"], &[], false),
            (&["a"], &["b"], false),
            (&["a", "b"], &[], false),
            (&["a"], &["b"], false),
            (&["a"], &["b"], false),
            (&["a", "b"], &[], true),
            (&["b"], &[], false),
            (&["b"], &["a"], false),
            (&["a", "b"], &[], true),
        ];
        for (ask, (answering, late, comes_back)) in asks.into_iter().enumerate() {
            assert_eq!(
                presence.has_come_back(brokers(answering), brokers(late)),
                comes_back,
                "{ask}"
            );
        }
    }
}
