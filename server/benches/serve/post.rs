//! Sends to the gateway, and inspects the broker, by the bare client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use delayline::backend::{Backend as _, RocketMqBackend};
use delayline::rocketmq::RocketMqOptions;
use rocketmq_client_rust::{DefaultMQAdminExt, RouteAdmin, TopicAdmin};
use rocketmq_model::common::message::message_single::Message;
use tokio::task::JoinSet;

use crate::Error;
use crate::client::Client;
use crate::place::Fresh;
use crate::server::{ANY_PORT, Server};

/// How many messages are on their way at once.
const AT_ONCE: usize = 64;
/// How often it is looked whether there is more.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// For how long nothing more may come before it counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(60);

pub(crate) struct Post<'a> {
    pub(crate) client: &'a Client,
    pub(crate) nameserver: &'a str,
}

impl Post<'_> {
    /// Makes a topic with a unique name, with as many queues as an inbox: the carrier of wake-ups creates it, where it
    /// is missing.
    pub(crate) async fn topic(&self) -> Result<String, Error> {
        let topic = topic();
        let options = RocketMqOptions::new(self.nameserver)
            .topic(&topic)
            .group(format!("{topic}_made"));
        RocketMqBackend::connect(options).await?.close().await?;
        Ok(topic)
    }

    /// Sends so many messages, some at once.
    pub(crate) async fn send(
        &self,
        count: usize,
        message: impl Fn(usize) -> Result<Message, Error>,
    ) -> Result<(), Error> {
        let mut flights = JoinSet::new();
        for number in 0..count {
            if flights.len() >= AT_ONCE {
                flights.join_next().await.ok_or("no flight")???;
            }
            let (producer, message) = (self.client.producer.clone(), message(number)?);
            // Its futures are large.
            flights.spawn(Box::pin(async move {
                producer.send(message).await?;
                Ok::<_, Error>(())
            }));
        }
        while let Some(sent) = flights.join_next().await {
            sent??;
        }
        Ok(())
    }

    /// A server with a gateway from one topic to another.
    pub(crate) fn gateway(&self, fresh: &Fresh, inbox: &str, target: &str) -> Server {
        let (url, nameserver) = (&fresh.url, self.nameserver);
        Server::configured(&format!(
            "[store]\nurl = \"{url}\"\n\
             [rocketmq]\nnameserver = \"{nameserver}\"\ntopic = \"{inbox}_wakes\"\ngroup = \"{inbox}_wakes\"\n\
             [gateway]\ninbox = \"{inbox}\"\ngroup = \"{inbox}\"\ntargets = [\"{target}\"]\n{ANY_PORT}"
        ))
    }
}

/// How many messages brokers have been given for their levels.
pub(crate) struct Levels {
    admin: DefaultMQAdminExt,
    masters: Vec<String>,
    so_far: i64,
}

impl Levels {
    pub(crate) async fn from_now_on(client: &Client) -> Result<Self, Error> {
        let mut admin = DefaultMQAdminExt::new(client.runtime.clone());
        *admin.client_config_mut() = client.config.clone();
        admin.client_config_mut().instance_name = topic().into();
        admin.start().await?;
        let cluster = RouteAdmin::examine_broker_cluster_info(&admin).await?;
        let brokers = cluster.broker_addr_table.unwrap_or_default();
        let masters = brokers
            .values()
            .filter_map(|broker| broker.broker_addrs().get(&0))
            .map(ToString::to_string);
        let mut levels = Self {
            masters: masters.collect(),
            admin,
            so_far: 0,
        };
        levels.so_far = levels.count().await?;
        Ok(levels)
    }

    async fn count(&self) -> Result<i64, Error> {
        let mut count = 0;
        for master in &self.masters {
            let stats = TopicAdmin::examine_topic_stats(
                &self.admin,
                "SCHEDULE_TOPIC_XXXX".into(),
                Some(master.as_str().into()),
            )
            .await?;
            count += stats
                .into_offset_table()
                .values()
                .map(|offsets| offsets.get_max_offset())
                .sum::<i64>();
        }
        Ok(count)
    }

    /// How many since then.
    pub(crate) async fn more(&self) -> Result<usize, Error> {
        Ok(usize::try_from(self.count().await? - self.so_far)?)
    }

    pub(crate) async fn close(mut self) {
        self.admin.shutdown().await;
    }
}

/// How many a second there are more, from the first on until there are so many.
pub(crate) async fn rate(count: usize, so_far: impl AsyncFn() -> Result<usize, Error>) -> Result<f64, Error> {
    let (mut first, mut seen, mut last) = (None, 0, Instant::now());
    loop {
        let now = so_far().await?;
        if now > seen {
            (seen, last) = (now, Instant::now());
        }
        match first {
            None if now > 0 => first = Some((now, last)),
            Some((before, begun)) if now >= count => {
                return Ok(count.saturating_sub(before) as f64 / last.duration_since(begun).as_secs_f64());
            }
            _ if last.elapsed() > LOST_AFTER => {
                return Err(format!("{} of {count} messages have got lost", count - seen).into());
            }
            _ => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Makes a unique name of a topic.
fn topic() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("bare_{}_{number}", since.as_millis())
}
