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
    all_within: Duration,
}

/// Which brokers are there.
#[derive(Default)]
struct Presence {
    /// None before the first check.
    present: Option<BTreeSet<CheetahString>>,
    /// Those whose answer was late the last time.
    late: BTreeSet<CheetahString>,
}

/// What brokers said.
struct Asked {
    answering: BTreeSet<CheetahString>,
    late: BTreeSet<CheetahString>,
    all_answer: bool,
}

/// The clients for the checks.
struct Clients {
    admin: Admin,
    producer: DefaultMQProducer,
}

impl Clients {
    async fn open(factory: &ClientFactory) -> Result<Self, Error> {
        let admin = Admin::open(factory).await?;
        match factory.producer(GROUP, WITHIN).await {
            Ok(producer) => Ok(Self { admin, producer }),
            Err(error) => {
                admin.close().await;
                Err(error)
            }
        }
    }

    async fn close(mut self) {
        self.admin.close().await;
        self.producer.shutdown().await;
    }
}

impl Watch {
    pub(super) fn new(factory: ClientFactory, topics: Vec<String>) -> Self {
        Self {
            factory,
            topics,
            clients: None,
            presence: Presence::default(),
            all_within: ALL_WITHIN,
        }
    }

    /// Waits until a broker answers that did not the last time.
    pub(super) async fn until_a_broker_comes_back(&mut self) {
        loop {
            sleep(EVERY).await;
            // If no nameserver answers, that says nothing about brokers.
            if let Some((answering, late)) = self.check().await
                && self.presence.has_come_back(answering, late)
            {
                return;
            }
        }
    }

    /// Returns the brokers that answer, and those that take too long; none, if no nameserver answers.
    async fn check(&mut self) -> Option<(BTreeSet<CheetahString>, BTreeSet<CheetahString>)> {
        let mut clients = match self.clients.take() {
            Some(clients) => clients,
            None => Clients::open(&self.factory).await.ok()?,
        };
        // The clients are kept out of what is abandoned here, as nothing else would end them.
        let asked = timeout(self.all_within, self.ask(&mut clients)).await;
        let asked = asked.ok().and_then(Result::ok);
        if asked.as_ref().is_some_and(|asked| asked.all_answer) {
            self.clients = Some(clients);
        } else {
            // Clients without an answer remember that for half a minute. Their end asks brokers, for seconds each where
            // they hang: the others are watched meanwhile.
            tokio::spawn(Box::pin(clients.close()));
        }
        asked.map(|Asked { answering, late, .. }| (answering, late))
    }

    /// Asks the brokers for a queue of any of the topics.
    async fn ask(&self, clients: &mut Clients) -> Result<Asked, Error> {
        let queues = self.queues(&clients.admin).await?;
        let (mut answering, mut late) = (BTreeSet::new(), BTreeSet::new());
        let mut all_answer = true;
        for queue in &queues {
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
        Ok(Asked {
            answering,
            late,
            all_answer,
        })
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
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::rocketmq::{Client, RocketMqOptions};

    /// A nameserver that takes connections and answers nothing; counts those that there were, and those that are.
    async fn silent() -> (String, watch::Receiver<(usize, usize)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (count, counted) = watch::channel((0, 0));
        let count = Arc::new(count);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                count.send_modify(|(all, open)| (*all, *open) = (*all + 1, *open + 1));
                let count = count.clone();
                tokio::spawn(async move {
                    while connection.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) {}
                    count.send_modify(|(_, open)| *open -= 1);
                });
            }
        });
        (address, counted)
    }

    #[tokio::test]
    async fn while_nameservers_are_silent_no_client_is_left_behind() {
        let (nameserver, mut counted) = silent().await;
        let client = Client::start(&RocketMqOptions::new(nameserver)).await.unwrap();
        let mut watch = Watch::new(client.factory(), vec!["t".to_owned()]);
        watch.all_within = Duration::from_millis(300);
        let watching = client.spawn(async move { watch.until_a_broker_comes_back().await });
        let counting = async {
            let (_, open) = *counted.wait_for(|(all, _)| *all >= 5).await.unwrap();
            // That of this round, and that of the last, which may be about to be noticed as closed.
            assert!(open <= 2, "{open} of 5 connections are open");
        };
        let minute = Duration::from_secs(60);
        timeout(minute, counting).await.expect("it asks again and again");
        watching.abort();
        client.close().await;
    }

    /// A nameserver that answers each request by the route to one broker.
    async fn naming(broker: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let route = format!(
            r#"{{"brokerDatas":[{{"brokerAddrs":{{"0":"{broker}"}},"brokerName":"b","cluster":"c"}}],"filterServerTable":{{}},
            "queueDatas":[{{"brokerName":"b","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}}]}}"#
        );
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let route = route.clone();
                tokio::spawn(async move {
                    while let Ok(length) = connection.read_u32().await {
                        let mut request = vec![0; usize::try_from(length).unwrap()];
                        connection.read_exact(&mut request).await.unwrap();
                        let request = String::from_utf8_lossy(&request);
                        let number = request.split(r#""opaque":"#).nth(1).unwrap();
                        let number = number.split(',').next().unwrap();
                        let header = format!(
                            r#"{{"code":0,"language":"JAVA","version":435,"opaque":{number},"flag":1,"remark":"",
                            "extFields":{{}},"serializeTypeCurrentRPC":"JSON"}}"#
                        );
                        let lengths = [4 + header.len() + route.len(), header.len()];
                        for length in lengths {
                            connection
                                .write_u32(u32::try_from(length).unwrap())
                                .await
                                .unwrap();
                        }
                        connection.write_all(header.as_bytes()).await.unwrap();
                        connection.write_all(route.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_broker_that_hangs_does_not_keep_others_from_being_watched() {
        let (broker, mut counted) = silent().await;
        let nameserver = naming(&broker).await;
        let client = Client::start(&RocketMqOptions::new(nameserver)).await.unwrap();
        let mut watch = Watch::new(client.factory(), vec!["t".to_owned()]);
        let checked = client.run(async move { watch.check().await }).await;
        // The end of the check's clients takes 6 s from here.
        let (_, open) = *counted.borrow();
        let (answering, late) = checked.unwrap().expect("a route");
        assert!(
            answering.is_empty() && late == brokers(&["b"]),
            "{answering:?}, {late:?}"
        );
        assert!(open > 0, "the check waited for the end of its clients");
        let ended = counted.wait_for(|(_, open)| *open == 0);
        let minute = Duration::from_secs(60);
        timeout(minute, ended).await.expect("they end").unwrap();
        client.close().await;
    }

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
