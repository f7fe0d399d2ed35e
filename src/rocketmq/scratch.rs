//! Makes and deletes a temporary topic and consumer group.

use std::fmt;
use std::time::Duration;

use rocketmq_model::common::message::message_single::Message;
use tokio::time::sleep;

use super::Hidden;
use super::admin::{Admin, MasterAddresses};
use super::client::{Client, ClientFactory};
use super::options::RocketMqOptions;
use crate::Error;

/// How long sending a message to a broker may take.
const SEND_WITHIN: Duration = Duration::from_secs(1);
/// How long a broker may take to notice a message that it has.
const PAUSE: Duration = Duration::from_millis(500);

/// A temporary topic and consumer group of one's own, to try brokers with.
pub struct Scratch {
    client: Client,
    options: RocketMqOptions,
    masters: MasterAddresses,
    refusals: Vec<Error>,
}

impl Scratch {
    /// Creates a topic and a group on every master, named like those of `options` with random digits added.
    pub async fn make(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        Self::open(options.into()).await
    }

    /// Separate from `make`, which is compiled where it is called.
    fn open(mut options: RocketMqOptions) -> Hidden<'static, Result<Self, Error>> {
        Box::pin(async move {
            let mark = format!("_{:016x}", fastrand::u64(..));
            options.topic += &mark;
            options.group += &mark;
            let making = async |factory: ClientFactory, options: RocketMqOptions| {
                let admin = Admin::open(&factory).await?;
                let made = make(&admin, &options.topic, &options.group).await;
                admin.close().await;
                made
            };
            let (client, (masters, refusals)) = Client::open(options.clone(), making).await?;
            Ok(Self {
                client,
                options,
                masters,
                refusals,
            })
        })
    }

    /// Returns the options that it was made by, with its own topic and group.
    pub fn options(&self) -> &RocketMqOptions {
        &self.options
    }

    /// Returns the name of the topic.
    pub fn topic(&self) -> &str {
        &self.options.topic
    }

    /// Returns what masters have not created, and why: a broker that creates topics and groups by itself may serve all
    /// the same.
    pub fn refusals(&self) -> &[Error] {
        &self.refusals
    }

    /// Deletes both, and the topics that brokers have added to the group.
    ///
    /// Only when nothing consumes any more: a consumer would bring some of it back. The error is the first failed
    /// deletion; the rest is gone all the same.
    pub async fn delete(self) -> Result<(), Error> {
        self.end().await
    }

    /// Separate from `delete`, which is compiled where it is called.
    fn end(self) -> Hidden<'static, Result<(), Error>> {
        Box::pin(async move {
            let factory = self.client.factory();
            let deleting = self.client.run_within(async move {
                let admin = Admin::open(&factory).await?;
                answer_held_questions(&factory, &self.options).await;
                let deleted = delete(&admin, &self.masters, &self.options).await;
                admin.close().await;
                deleted
            });
            let deleted = deleting.await;
            self.client.close().await;
            deleted
        })
    }
}

async fn make(admin: &Admin, topic: &str, group: &str) -> Result<(MasterAddresses, Vec<Error>), Error> {
    let masters = admin.masters().await?;
    let mut refusals = Vec::new();
    for address in masters.values() {
        refusals.extend(admin.make_topic(address, topic).await.err());
        refusals.extend(admin.make_group(address, group).await.err());
    }
    Ok((masters, refusals))
}

/// Sends a message to each queue, and waits a little.
///
/// A broker holds a consumer's poll until there is a message, for up to 20 s and even if the consumer has gone. Then it
/// looks up the topic and the group again; it would complain of the topic in its log, and create the group again.
async fn answer_held_questions(factory: &ClientFactory, options: &RocketMqOptions) {
    let Ok(mut producer) = factory.producer(&options.group, SEND_WITHIN).await else {
        return;
    };
    for topic in topics(options) {
        let queues = producer.fetch_publish_message_queues(&topic).await;
        for queue in queues.into_iter().flatten() {
            let message = Message::builder().topic(topic.as_str()).body("end").build();
            if let Ok(message) = message {
                // Where it fails, the group may stay.
                let _ = producer.send_to_queue(message, queue).await;
            }
        }
    }
    producer.shutdown().await;
    sleep(PAUSE).await;
}

/// Returns the topic, and the one that brokers add to the group.
fn topics(options: &RocketMqOptions) -> [String; 2] {
    [options.topic.clone(), format!("%RETRY%{}", options.group)]
}

async fn delete(admin: &Admin, masters: &MasterAddresses, options: &RocketMqOptions) -> Result<(), Error> {
    let mut failed = None;
    let topics = topics(options);
    for address in masters.values() {
        for topic in &topics {
            failed = failed.or(admin.delete_topic(address, topic).await.err());
        }
        failed = failed.or(admin.delete_group(address, &options.group).await.err());
    }
    for topic in &topics {
        failed = failed.or(admin.forget_topic(topic).await.err());
    }
    failed.map_or(Ok(()), Err)
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch")
            .field("options", &self.options)
            .field("refusals", &self.refusals)
            .finish_non_exhaustive()
    }
}
