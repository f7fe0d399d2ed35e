//! The masters that levels go through, and their level tables.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::DefaultMQProducer;
use tokio::time::timeout;

use crate::rocketmq::{Admin, Base, RocketMqOptions, Unanswered, failure, is_refusal, transient};
use crate::{Error, LevelTable};

/// For how long a broker that is asked whether it is there may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Asks every master for its level table and makes the topic where it is missing; gives the table.
pub(super) async fn prepare(base: &Base, options: &RocketMqOptions) -> Result<LevelTable, Error> {
    let admin = Admin::open(base).await?;
    let prepared = prepare_with(&admin, options).await;
    admin.close().await;
    prepared
}

async fn prepare_with(admin: &Admin, options: &RocketMqOptions) -> Result<LevelTable, Error> {
    let masters = admin.masters().await?;
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
    admin.ensure_topic(&masters, &options.topic).await?;
    Ok(table)
}

/// What a master says of its level table.
type Told = Result<LevelTable, Unanswered>;

async fn table_of(admin: &Admin, address: &CheetahString) -> Told {
    let settings = admin.settings(address).await?;
    let levels = settings
        .get("messageDelayLevel")
        .ok_or_else(|| Unanswered::Refused(transient("the broker's settings have no messageDelayLevel")))?;
    levels.parse().map_err(Unanswered::Refused)
}

/// The one table of all masters that tell theirs; the default one if none does.
fn agree(told: BTreeMap<CheetahString, Told>) -> Result<LevelTable, Error> {
    let mut agreed: Option<(CheetahString, LevelTable)> = None;
    let mut there = false;
    let mut absent = None;
    for (name, told) in told {
        match told {
            Ok(table) => match &agreed {
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
            Err(Unanswered::Refused(error)) => {
                there = true;
                tracing::warn!(broker = %name, %error, "a broker does not tell its delay levels");
            }
            Err(Unanswered::Absent(error)) => {
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

/// Whether at least one broker answers for the topic.
///
/// It asks the nameservers which brokers have the topic, and each of these, until one answers, for the end of a
/// queue. That it does not tell us is an answer too: by ACL 2.0 not everybody who may send may know.
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
            Err(cause) if is_refusal(&cause) => return Ok(()),
            Err(cause) => absent = failure("asking a broker for the topic", cause),
        }
    }
    Err(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Told {
        Ok(text.parse().unwrap())
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
            Err(Unanswered::Refused(transient("no permission"))),
            Err(Unanswered::Absent(transient("refused"))),
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
            Err(Unanswered::Absent(transient("refused"))),
            Err(Unanswered::Refused(transient("no permission"))),
        ]));
        assert_eq!(agreed.unwrap(), LevelTable::default());
    }

    #[test]
    fn nothing_is_assumed_of_brokers_that_are_not_there() {
        let error = agree(told([Err(Unanswered::Absent(transient("refused")))])).unwrap_err();
        assert!(error.is_transient());
    }
}
