//! What is asked of brokers: their level tables, their topics, whether they are there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::{BrokerAdmin, DefaultMQAdminExt, DefaultMQProducer, RouteAdmin, TopicAdmin};
use rocketmq_model::topic::TopicConfig;
use tokio::time::{Instant, sleep, timeout};

use super::client::Base;
use super::failure::{failure, transient};
use super::options::RocketMqOptions;
use crate::{Error, LevelTable};

/// The number of a master among the brokers of one name.
const MASTER: u64 = 0;
/// The queues of a new topic on each master: as many workers can share it.
const QUEUES: u32 = 8;
/// For how long a new topic may take to become known to the nameservers.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How often they are asked for it.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// For how long a broker that is asked whether it is there may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// The masters by name, each with its address.
type Masters = BTreeMap<CheetahString, CheetahString>;

/// Asks every master for its level table and makes the topic where it is missing; gives the table.
pub(super) async fn prepare(base: &Base, options: &RocketMqOptions) -> Result<LevelTable, Error> {
    let mut admin = DefaultMQAdminExt::new(base.runtime());
    *admin.client_config_mut() = base.config();
    let prepared = match admin.start().await {
        Ok(()) => prepare_with(&admin, options).await,
        Err(cause) => Err(failure("starting the admin client", cause)),
    };
    admin.shutdown().await;
    prepared
}

async fn prepare_with(admin: &DefaultMQAdminExt, options: &RocketMqOptions) -> Result<LevelTable, Error> {
    let masters = masters(admin).await?;
    let table = match &options.levels {
        Some(levels) => levels.clone(),
        None => {
            let mut told = BTreeMap::new();
            for (name, address) in &masters {
                told.insert(name.clone(), table_of(admin, address).await);
            }
            agree(told)?
        }
    };
    ensure_topic(admin, &masters, &options.topic).await?;
    Ok(table)
}

async fn masters(admin: &DefaultMQAdminExt) -> Result<Masters, Error> {
    let cluster = RouteAdmin::examine_broker_cluster_info(admin)
        .await
        .map_err(|cause| failure("asking the nameservers for their brokers", cause))?;
    let masters: Masters = cluster
        .broker_addr_table
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, broker)| Some((name, broker.broker_addrs().get(&MASTER)?.clone())))
        .collect();
    if masters.is_empty() {
        return Err(transient("the nameservers know of no master broker"));
    }
    Ok(masters)
}

/// What a master says of its level table.
enum Told {
    Table(LevelTable),
    /// It is there, and does not say.
    Refused(Error),
    /// It may or may not be there.
    Nothing(Error),
}

async fn table_of(admin: &DefaultMQAdminExt, address: &CheetahString) -> Told {
    let config = match admin.get_broker_config(address.clone()).await {
        Ok(config) => config,
        Err(cause) => {
            let answered = cause.broker_response_code().is_some();
            let error = failure("asking a broker for its level table", cause);
            return if answered {
                Told::Refused(error)
            } else {
                Told::Nothing(error)
            };
        }
    };
    match config.get("messageDelayLevel").map(|text| text.parse()) {
        Some(Ok(table)) => Told::Table(table),
        Some(Err(error)) => Told::Refused(error),
        None => Told::Refused(transient("the broker's settings have no messageDelayLevel")),
    }
}

/// The one table of all masters that tell theirs; the default one if none does.
fn agree(told: BTreeMap<CheetahString, Told>) -> Result<LevelTable, Error> {
    let mut agreed: Option<(CheetahString, LevelTable)> = None;
    let mut there = false;
    let mut absent = None;
    for (name, told) in told {
        match told {
            Told::Table(table) => match &agreed {
                Some((first, same)) if *same != table => {
                    return Err(Error::invalid(
                        "messageDelayLevel",
                        format!("{first}: {same}; {name}: {table}"),
                        "all masters must have the same levels",
                    ));
                }
                Some(_) => {}
                None => agreed = Some((name, table)),
            },
            Told::Refused(error) => {
                there = true;
                tracing::warn!(broker = %name, %error, "a broker does not tell its delay levels");
            }
            Told::Nothing(error) => {
                tracing::warn!(broker = %name, %error, "a broker did not answer");
                absent = Some(error);
            }
        }
    }
    match (agreed, absent) {
        (Some((_, table)), _) => Ok(table),
        (None, Some(error)) if !there => Err(error),
        (None, _) => {
            let table = LevelTable::default();
            tracing::warn!(
                levels = %table,
                "no broker tells its delay levels, so RocketMQ's default ones are assumed; \
                 if that is wrong, configure them, or wake-ups will be early or late"
            );
            Ok(table)
        }
    }
}

/// Makes the topic on each master that lacks it, and waits until the nameservers know of it.
///
/// Before anything consumes: a consumer that starts earlier learns of a topic only when it next reads routes.
/// A topic that is there stays as its operator made it.
async fn ensure_topic(admin: &DefaultMQAdminExt, masters: &Masters, topic: &str) -> Result<(), Error> {
    let known = brokers_with(admin, topic).await;
    let mut made = BTreeSet::new();
    for (name, address) in masters.iter().filter(|(name, _)| !known.contains(*name)) {
        let config = TopicConfig::with_queues(topic, QUEUES, QUEUES);
        match admin
            .create_and_update_topic_config(address.clone(), config)
            .await
        {
            Ok(()) => {
                made.insert(name.clone());
            }
            Err(cause) => {
                let error = failure("making the topic", cause);
                tracing::warn!(broker = %name, topic, %error, "a broker has not made the topic");
            }
        }
    }
    let deadline = Instant::now() + KNOWN_WITHIN;
    while !made.is_empty() && !made.is_subset(&brokers_with(admin, topic).await) {
        if Instant::now() >= deadline {
            return Err(transient(format!(
                "the nameservers do not learn of the new topic {topic}"
            )));
        }
        sleep(ASK_EVERY).await;
    }
    Ok(())
}

/// The names of the brokers that have the topic, as far as the nameservers know.
async fn brokers_with(admin: &DefaultMQAdminExt, topic: &str) -> BTreeSet<CheetahString> {
    // That nobody has it is told as an error.
    match admin.examine_topic_route_info(topic.into()).await {
        Ok(Some(route)) => route
            .broker_datas
            .iter()
            .map(|broker| broker.broker_name().clone())
            .collect(),
        Ok(None) | Err(_) => BTreeSet::new(),
    }
}

/// Whether at least one broker answers for the topic.
///
/// It asks the nameservers which brokers have the topic, and each of these, until one answers, for the end of a
/// queue: what whoever may send may also ask.
pub(super) async fn probe(producer: &DefaultMQProducer, topic: &str) -> Result<(), Error> {
    timeout(ANSWER_WITHIN, ask(producer.clone(), topic))
        .await
        .unwrap_or_else(|_| Err(transient("no broker answered in time")))
}

async fn ask(mut producer: DefaultMQProducer, topic: &str) -> Result<(), Error> {
    let queues = producer
        .fetch_publish_message_queues(topic)
        .await
        .map_err(|cause| failure("asking the nameservers for the topic", cause))?;
    let one_each: BTreeMap<_, _> = queues.iter().map(|queue| (queue.broker_name(), queue)).collect();
    let mut absent = transient(format!("no broker has the topic {topic}"));
    for queue in one_each.into_values() {
        match producer.max_offset(queue).await {
            Ok(_) => return Ok(()),
            Err(cause) => absent = failure("asking a broker for the topic", cause),
        }
    }
    Err(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Told {
        Told::Table(text.parse().unwrap())
    }

    fn told<const N: usize>(told: [Told; N]) -> BTreeMap<CheetahString, Told> {
        (0..)
            .map(|number| format!("broker-{number}").into())
            .zip(told)
            .collect()
    }

    #[test]
    fn the_table_of_those_who_tell_is_everybodys() {
        let agreed = agree(told([
            table("1s 2s"),
            Told::Refused(transient("no permission")),
            Told::Nothing(transient("refused")),
            table("1s 2s"),
        ]));
        assert_eq!(agreed.unwrap().to_string(), "1s 2s");
    }

    #[test]
    fn unlike_tables_are_refused_and_both_are_named() {
        let text = agree(told([table("1s 2s"), table("1s 3s")]))
            .unwrap_err()
            .to_string();
        assert!(text.contains("broker-0: 1s 2s; broker-1: 1s 3s"), "{text}");
    }

    #[test]
    fn brokers_that_are_there_and_do_not_tell_have_the_default_table() {
        let agreed = agree(told([
            Told::Nothing(transient("refused")),
            Told::Refused(transient("no permission")),
        ]));
        assert_eq!(agreed.unwrap(), LevelTable::default());
    }

    #[test]
    fn nothing_is_assumed_of_brokers_that_are_not_there() {
        let error = agree(told([Told::Nothing(transient("refused"))])).unwrap_err();
        assert!(error.is_transient());
    }
}
