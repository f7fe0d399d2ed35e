//! The servers alone: a plain producer, a plain consumer, a plain loop.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rocketmq_client_rust::DefaultMQPushConsumer;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use tokio::task::JoinSet;

use crate::client::{Client, now_ms, topic};
use crate::{BURST, CALLERS, EVERY, Error, LEVEL, STEADY};

/// The number of the level in the table.
const NUMBER: i32 = 2;

/// A bare client.
pub(crate) struct RocketMq(Client);

/// What a consumer has seen: when each message was sent, and how late it was.
#[derive(Default)]
struct Seen {
    late: Mutex<Vec<i64>>,
    count: AtomicUsize,
    first_at: AtomicI64,
    last_at: AtomicI64,
}

impl RocketMq {
    pub(crate) async fn start(nameserver: &str) -> Result<Self, Error> {
        Client::start(nameserver).await.map(Self)
    }

    /// How late the messages of a steady load through one level come, in ms.
    pub(crate) async fn late(&self) -> Result<Vec<i64>, Error> {
        let (topic, mut consumer, seen) = self.consume().await?;
        let mut tick = tokio::time::interval(EVERY);
        let mut flights = JoinSet::new();
        for _ in 0..STEADY {
            tick.tick().await;
            flights.spawn(self.send(&topic, NUMBER));
        }
        while let Some(sent) = flights.join_next().await {
            sent??;
        }
        seen.wait_for(STEADY).await?;
        consumer.shutdown().await;
        Ok(std::mem::take(
            &mut *seen.late.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// How many messages a second are sent, without a delay.
    pub(crate) async fn sent(&self, time: Duration) -> Result<f64, Error> {
        let topic = topic();
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (producer, topic) = (self.0.producer.clone(), topic.clone());
            callers.spawn(Box::pin(async move {
                let mut count = 0_u32;
                while start.elapsed() < time {
                    producer.send(message(&topic, 0)?).await?;
                    count += 1;
                }
                Ok::<_, Error>(count)
            }));
        }
        let mut count = 0;
        while let Some(caller) = callers.join_next().await {
            count += caller??;
        }
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }

    /// How many ms a consumer takes for messages that come out of one level at once: from the first to the last.
    pub(crate) async fn drained(&self, count: usize) -> Result<f64, Error> {
        let (topic, mut consumer, seen) = self.consume().await?;
        let mut flights = JoinSet::new();
        for _ in 0..count {
            if flights.len() >= CALLERS {
                flights.join_next().await.ok_or("no flight")???;
            }
            flights.spawn(self.send(&topic, NUMBER));
        }
        while let Some(sent) = flights.join_next().await {
            sent??;
        }
        seen.wait_for(count).await?;
        consumer.shutdown().await;
        let (first, last) = (
            seen.first_at.load(Ordering::Relaxed),
            seen.last_at.load(Ordering::Relaxed),
        );
        Ok((last - first) as f64)
    }

    fn send(
        &self,
        topic: &str,
        level: i32,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        let (producer, topic) = (self.0.producer.clone(), topic.to_owned());
        Box::pin(async move {
            producer.send(message(&topic, level)?).await?;
            Ok(())
        })
    }

    async fn consume(&self) -> Result<(String, DefaultMQPushConsumer, Arc<Seen>), Error> {
        let topic = topic();
        // Makes the topic: a consumer that starts before it learns of it only half a minute later.
        let first = Message::builder().topic(topic.as_str()).body("first").build()?;
        self.0.producer.send(first).await?;
        let seen = Arc::new(Seen::default());
        let listener = Arc::clone(&seen);
        let consumer = self
            .0
            .consume(&topic, move |messages| listener.take(messages))
            .await?;
        Ok((topic, consumer, seen))
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}

impl Seen {
    fn take(&self, messages: &[&MessageExt]) {
        let now = now_ms();
        let sent: Vec<i64> = messages
            .iter()
            .filter_map(|message| {
                let body = message.get_body()?;
                std::str::from_utf8(body).ok()?.trim_end().parse().ok()
            })
            .collect();
        if sent.is_empty() {
            return;
        }
        let level = LEVEL.as_millis() as i64;
        self.late
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(sent.iter().map(|sent| now - sent - level));
        let _ = self
            .first_at
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.last_at.fetch_max(now, Ordering::Relaxed);
        self.count.fetch_add(sent.len(), Ordering::Relaxed);
    }

    async fn wait_for(&self, count: usize) -> Result<(), Error> {
        let all = async {
            while self.count.load(Ordering::Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await?;
        Ok(())
    }
}

/// The time, filled up to 100 bytes.
fn message(topic: &str, level: i32) -> Result<Message, Error> {
    let body = format!("{:<100}", now_ms());
    Ok(Message::builder()
        .topic(topic)
        .body(body)
        .delay_level(level)
        .build()?)
}

/// How late the members of a ZSET are taken by a loop that does nothing else, in ms.
pub(crate) async fn zset(url: &str) -> Result<Vec<i64>, Error> {
    const TAKE: &str = "
        local now = redis.call('TIME')
        local ms = now[1] * 1000 + math.floor(now[2] / 1000)
        local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ms, 'LIMIT', 0, 100)
        for _, member in ipairs(due) do
            redis.call('ZREM', KEYS[1], member)
            redis.call('ZADD', KEYS[2], ms + 30000, member)
        end
        return due";
    let (due, leased) = ("bare:due", "bare:leased");
    let mut connection = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let mut members = redis::pipe();
    members.del(due).ignore().del(leased).ignore();
    let start = now_ms() + 500;
    for number in 0..STEADY {
        let at = start + i64::try_from(EVERY.as_millis() * number as u128)?;
        members.zadd(due, format!("{at}:{number}"), at).ignore();
    }
    members.exec_async(&mut connection).await?;
    let take = redis::Script::new(TAKE);
    let mut late = Vec::with_capacity(BURST);
    while late.len() < STEADY {
        let taken: Vec<String> = take.key(due).key(leased).invoke_async(&mut connection).await?;
        let now = now_ms();
        for member in &taken {
            let at: i64 = member.split(':').next().unwrap_or_default().parse()?;
            late.push(now - at);
        }
        if taken.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            let _: usize = redis::cmd("ZREM")
                .arg(leased)
                .arg(&taken)
                .query_async(&mut connection)
                .await?;
        }
    }
    Ok(late)
}
