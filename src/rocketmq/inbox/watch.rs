//! Which brokers answer.

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
/// For how long one may take to answer.
const WITHIN: Duration = Duration::from_millis(500);
/// For how long nameservers and brokers may take together.
const ALL_WITHIN: Duration = Duration::from_secs(5);
/// The producer group of the clients that only ask.
const GROUP: &str = "delayline_inbox_watch";

/// Asks the brokers of topics every second whether they answer.
pub(super) struct Watch {
    factory: ClientFactory,
    topics: Vec<String>,
    clients: Option<Clients>,
    /// Those that answered the last time; none before the first.
    answering: Option<BTreeSet<CheetahString>>,
}

/// What is asked with.
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
            answering: None,
        }
    }

    /// Waits until a broker answers that did not the last time.
    pub(super) async fn until_a_broker_comes_back(&mut self) {
        loop {
            sleep(EVERY).await;
            // That no nameserver answers says nothing of brokers.
            let Ok(Ok(answering)) = timeout(ALL_WITHIN, self.ask()).await else {
                continue;
            };
            let before = self.answering.replace(answering.clone());
            if before.is_some_and(|before| !answering.is_subset(&before)) {
                return;
            }
        }
    }

    /// The brokers that answer for a queue of any of the topics.
    async fn ask(&mut self) -> Result<BTreeSet<CheetahString>, Error> {
        let mut clients = match self.clients.take() {
            Some(clients) => clients,
            None => Clients {
                admin: Admin::open(&self.factory).await?,
                producer: self.factory.producer(GROUP, WITHIN).await?,
            },
        };
        let queues = self.queues(&clients.admin).await;
        let mut answering = BTreeSet::new();
        let mut all_answer = queues.is_ok();
        for queue in queues.as_deref().unwrap_or_default() {
            let answers = match timeout(WITHIN, clients.producer.max_offset(queue)).await {
                Ok(Ok(_)) => true,
                // Not every account may ask.
                Ok(Err(cause)) => is_refusal(&cause),
                Err(_) => false,
            };
            all_answer &= answers;
            if answers {
                answering.insert(queue.broker_name().clone());
            }
        }
        if all_answer {
            self.clients = Some(clients);
        } else {
            // Clients that were not answered remember that for half a minute.
            clients.admin.close().await;
            clients.producer.shutdown().await;
        }
        queues.map(|_| answering)
    }

    /// One queue of each broker.
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
