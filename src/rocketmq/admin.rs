//! Asks nameservers and brokers for routes, configuration, statistics, topics and groups.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::{
    BrokerAdmin, ClientError, DefaultMQAdminExt, OffsetAdmin, RouteAdmin, TopicAdmin,
};
use rocketmq_model::message::MessageQueue;
use rocketmq_model::topic::TopicConfig;
use rocketmq_protocol::protocol::route::topic_route_data::TopicRouteData;
use tokio::time::{Instant, sleep};

use super::broker_info::BrokerInfo;
use super::client::ClientFactory;
use super::failure::{NO_TOPIC, answer, explained, failure, is_hung_up, is_silence, transient, unreached};
use super::requests::{MASTER, Requests};
use crate::Error;

/// The permission to write, in the permissions of a topic's queues (`PermName.PERM_WRITE`).
const WRITE: u32 = 2;
/// The queues of a new topic on each master: as many workers can share it.
const QUEUES: u32 = 8;
/// The most queues of each master that are sent to: there is a route for each of them and each level.
const MOST_QUEUES: u32 = 128;
/// For how long a broker may take to say whether it has a consumer group.
const GROUP_WITHIN: Duration = Duration::from_secs(1);
/// For how long a new topic may take to become known to the nameservers.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How often they are asked for it.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The masters by name, each with its address.
pub(crate) type MasterAddresses = BTreeMap<CheetahString, CheetahString>;

/// Asks nameservers and brokers.
///
/// Must be closed in the end, and be used in the client's runtime only.
pub(crate) struct Admin {
    client: DefaultMQAdminExt,
    factory: ClientFactory,
}

/// Why a broker did not answer.
#[derive(Debug)]
pub(crate) enum AskError {
    /// It is there, and refuses: by its access rules, for one.
    Refused(Error),
    /// It may or may not be there.
    Unreachable(Error),
}

impl AskError {
    fn new(doing: &'static str, address: &str, cause: ClientError) -> Self {
        let answered = answer(&cause).is_some();
        let error = failure(doing, cause);
        if answered {
            Self::Refused(error)
        } else {
            Self::Unreachable(unreached(address, error))
        }
    }
}

impl Admin {
    /// Starts a client; sends no request yet.
    pub(crate) async fn open(factory: &ClientFactory) -> Result<Self, Error> {
        let mut client = factory.admin();
        match client.start().await {
            Ok(()) => Ok(Self {
                client,
                factory: factory.clone(),
            }),
            Err(cause) => {
                client.shutdown().await;
                Err(failure("starting the admin client", cause))
            }
        }
    }

    pub(crate) async fn close(mut self) {
        self.client.shutdown().await;
    }

    /// Lists the broker names that the nameservers know, each with the address of its master if it has one.
    pub(crate) async fn brokers(&self) -> Result<BTreeMap<CheetahString, Option<CheetahString>>, Error> {
        let cluster = RouteAdmin::examine_broker_cluster_info(&self.client)
            .await
            .map_err(|cause| {
                let meaning = match self.factory.speaks_tls() {
                    false if is_silence(&cause) => {
                        Some(
                            "a server may want TLS: see RocketMqOptions::tls (feature rocketmq-tls), or --tls-ca of \
                             delayline probe",
                        )
                    }
                    true if is_hung_up(&cause) => {
                        Some("a server may want a certificate, or no TLS: see RocketMqOptions::mutual_tls")
                    }
                    _ => None,
                };
                let error = failure(self.asking_nameservers("their brokers"), cause);
                match meaning {
                    Some(meaning) => explained(meaning, error),
                    None => error,
                }
            })?;
        let brokers = cluster.broker_addr_table.unwrap_or_default().into_iter();
        Ok(brokers
            .map(|(name, broker)| (name, broker.broker_addrs().get(&MASTER).cloned()))
            .collect())
    }

    /// Lists the masters that the nameservers know; an error if there is none.
    pub(crate) async fn masters(&self) -> Result<MasterAddresses, Error> {
        let brokers = self.brokers().await?.into_iter();
        let masters: MasterAddresses = brokers
            .filter_map(|(name, master)| Some((name, master?)))
            .collect();
        if masters.is_empty() {
            return Err(transient("the nameservers know of no master broker"));
        }
        Ok(masters)
    }

    /// Reads a broker's current settings (request `GET_BROKER_CONFIG`).
    pub(crate) async fn broker_config(&self, address: &CheetahString) -> Result<BrokerInfo, AskError> {
        match self.client.get_broker_config(address.clone()).await {
            Ok(settings) => Ok(settings.into_iter().collect()),
            Err(cause) => Err(AskError::new(
                "asking a broker for its configuration",
                address,
                cause,
            )),
        }
    }

    /// Reads a broker's statistics, its version among them (request `GET_BROKER_RUNTIME_INFO`).
    ///
    /// For it brokers from 5.0 on count all slots of their timer wheel, 1.2 million (`TimerWheel.getAllNum`): 7 to 16
    /// ms of processor time.
    pub(crate) async fn runtime_stats(&self, address: &CheetahString) -> Result<BrokerInfo, AskError> {
        match self.client.fetch_broker_runtime_stats(address.clone()).await {
            Ok(stats) => Ok(stats.table.into_iter().collect()),
            Err(cause) => {
                let doing = "asking a broker for its runtime statistics";
                Err(AskError::new(doing, address, cause))
            }
        }
    }

    /// Reads the end of a queue of a broker (request `GET_MAX_OFFSET`), which costs it next to nothing.
    pub(crate) async fn end_of_queue(
        &self,
        address: &CheetahString,
        queue: &MessageQueue,
    ) -> Result<i64, AskError> {
        let within = u64::try_from(GROUP_WITHIN.as_millis()).unwrap_or(u64::MAX);
        let asked = self.client.max_offset(address.clone(), queue.clone(), within);
        asked
            .await
            .map_err(|cause| AskError::new("asking a broker for a queue", address, cause))
    }

    /// Creates the topic and the consumer group on each master that lacks them, and waits until the nameservers know
    /// the topic; an error if no master has it then, or if access is refused.
    ///
    /// Before anything consumes: a consumer that starts earlier learns of a topic only when it next reads routes.
    /// Existing topics and groups stay as their operator made them.
    pub(crate) async fn ensure(
        &self,
        masters: &MasterAddresses,
        topic: &str,
        group: &str,
    ) -> Result<(), Error> {
        for (name, address) in masters {
            if let Err(error) = self.ensure_group(address, group).await {
                tracing::warn!(
                    broker = %name, group, %error,
                    "a broker refuses to make the consumer group, so workers receive nothing from it and tasks whose \
                     wake-ups are there wait for the sweep: make the group, or let the account do so"
                );
            }
        }
        let known = self.brokers_with(topic).await?;
        let (mut made, mut having) = (BTreeSet::new(), known.clone());
        let (mut refused, mut away) = (None, Vec::new());
        let lacking: Vec<_> = masters
            .iter()
            .filter(|(name, _)| !known.contains(*name))
            .collect();
        for (name, is_new) in self.ensure_topic(lacking, topic).await? {
            match is_new {
                Ok(is_new) => {
                    having.insert(name.clone());
                    made.extend(is_new.then(|| name.clone()));
                }
                Err(error) if error.is_transient() => away.push((name, error)),
                Err(error) => {
                    tracing::warn!(
                        broker = %name, topic, %error,
                        "a broker refuses to make the topic, so nothing is sent to it: make the topic, or let the account do so"
                    );
                    refused = Some(error);
                }
            }
        }
        let has_any = masters.keys().any(|name| having.contains(name));
        if let Some(error) = refused.filter(|_| !has_any) {
            return Err(explained(&format!("no master has the topic {topic}"), error));
        }
        for (name, error) in away {
            if !has_any {
                // To be told by what asks, which asks again.
                return Err(explained(&format!("no master has the topic {topic}"), error));
            }
            tracing::warn!(
                broker = %name, topic, %error,
                "a broker cannot be reached to make the topic, and others have it: see that it is up"
            );
        }
        // What other masters have need not wait until one reports a topic that it had before.
        let awaited = if known.is_empty() { &having } else { &made };
        let deadline = Instant::now() + KNOWN_WITHIN;
        while !awaited.is_empty() && !awaited.is_subset(&self.brokers_with(topic).await?) {
            if Instant::now() >= deadline {
                return Err(transient(format!(
                    "the nameservers do not know of the topic {topic} yet, which its brokers report to them"
                )));
            }
            sleep(ASK_EVERY).await;
        }
        self.check_access(masters.iter().filter(|(name, _)| having.contains(*name)), topic)
            .await
    }

    /// Creates the topic on each of these masters that has none, which the nameservers do not say of it; says of each whether it
    /// is new. To create one that is there would set its queues again, and a nameserver that has just restarted may not know
    /// of it.
    async fn ensure_topic<'m>(
        &self,
        masters: Vec<(&'m CheetahString, &CheetahString)>,
        topic: &str,
    ) -> Result<Vec<(&'m CheetahString, Result<bool, Error>)>, Error> {
        let mut ensured = Vec::with_capacity(masters.len());
        if masters.is_empty() {
            return Ok(ensured);
        }
        let requests = Requests::open(&self.factory).await?;
        for (name, address) in masters {
            ensured.push((
                name,
                match requests.has_topic(address, topic).await {
                    Ok(true) => Ok(false),
                    Ok(false) => self.make_topic(address, topic).await.map(|()| true),
                    Err(error) => Err(error),
                },
            ));
        }
        requests.close().await;
        Ok(ensured)
    }

    /// Asks one after the other, until one answers. An error if it denies these credentials the topic. Brokers that
    /// cannot be reached now are no error: they may come back.
    async fn check_access(
        &self,
        brokers: impl Iterator<Item = (&CheetahString, &CheetahString)>,
        topic: &str,
    ) -> Result<(), Error> {
        let requests = Requests::open(&self.factory).await?;
        let mut checked = Ok(());
        for (_, address) in brokers {
            match requests.check_access(address, topic).await {
                Err(error) if error.is_transient() => {
                    tracing::warn!(
                        broker = %address, topic, %error,
                        "a broker did not answer when it was asked for access to the topic, which is unknown until a \
                         message is sent: see that it is up"
                    );
                }
                answer => {
                    checked = answer;
                    break;
                }
            }
        }
        requests.close().await;
        checked
    }

    /// Says whether any broker has the topic, by the nameservers.
    pub(crate) async fn topic_exists(&self, topic: &str) -> Result<bool, Error> {
        Ok(!self.brokers_with(topic).await?.is_empty())
    }

    /// Lists the writable queues of the topic, by their broker, up to [`MOST_QUEUES`] for each broker that the
    /// nameservers name for it.
    pub(crate) async fn queues(
        &self,
        topic: &str,
    ) -> Result<BTreeMap<CheetahString, Vec<MessageQueue>>, Error> {
        let route = self.route(topic).await?;
        let queues = route.queue_datas.iter().map(|queues| {
            let may_write = queues.perm() & WRITE != 0;
            let count = if may_write { queues.write_queue_nums() } else { 0 };
            let name = queues.broker_name();
            let queues = (0..count.min(MOST_QUEUES))
                .filter_map(|number| i32::try_from(number).ok())
                .map(|number| MessageQueue::from_parts(topic, name.clone(), number));
            (name.clone(), queues.collect())
        });
        Ok(queues.collect())
    }

    /// Creates a topic on a master, or sets its queues again.
    pub(crate) async fn make_topic(&self, address: &CheetahString, topic: &str) -> Result<(), Error> {
        let config = TopicConfig::with_queues(topic, QUEUES, QUEUES);
        let made = self
            .client
            .create_and_update_topic_config(address.clone(), config)
            .await;
        made.map_err(|cause| failure("making the topic", cause))
    }

    /// Deletes a topic from a master, with its delivered messages.
    pub(crate) async fn delete_topic(&self, address: &CheetahString, topic: &str) -> Result<(), Error> {
        let deleted = self
            .client
            .delete_topic_in_broker([address.clone()].into(), topic.into())
            .await;
        deleted.map_err(|cause| failure("deleting the topic", cause))
    }

    /// Makes the nameservers forget a topic. Those before 5.0 never do by themselves.
    pub(crate) async fn forget_topic(&self, topic: &str) -> Result<(), Error> {
        let nameservers = RouteAdmin::get_name_server_address_list(&self.client).await;
        let forgotten = self
            .client
            .delete_topic_in_name_server(nameservers.into_iter().collect(), None, topic.into())
            .await;
        forgotten.map_err(|cause| failure("letting the nameservers forget the topic", cause))
    }

    /// Lists the names of the brokers that have the topic, by the nameservers.
    async fn brokers_with(&self, topic: &str) -> Result<BTreeSet<CheetahString>, Error> {
        let brokers = self.route(topic).await?.broker_datas;
        Ok(brokers
            .iter()
            .map(|broker| broker.broker_name().clone())
            .collect())
    }

    fn asking_nameservers(&self, what: &str) -> String {
        format!(
            "asking the nameservers ({}) for {what}",
            self.factory.nameservers()
        )
    }

    /// Returns the route of the topic, by the nameservers; an empty one, if they do not know it.
    async fn route(&self, topic: &str) -> Result<TopicRouteData, Error> {
        match self.client.examine_topic_route_info(topic.into()).await {
            Ok(route) => Ok(route.unwrap_or_default()),
            Err(cause) if answer(&cause) == Some(NO_TOPIC) => Ok(TopicRouteData::default()),
            Err(cause) => Err(failure(
                self.asking_nameservers(&format!("the topic {topic}")),
                cause,
            )),
        }
    }
}
