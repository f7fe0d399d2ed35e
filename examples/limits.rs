//! What the servers themselves can do, without this library: the limits that its lateness is measured against.
//!
//! ```sh
//! cargo run --example limits --features rocketmq,redis -- localhost:9876 redis://localhost:6379
//! ```
//!
//! - One native level: a plain producer sends messages with level 1, a plain push consumer takes them. Late is what
//!   comes after the level's delay, counted from the send.
//! - A bare ZSET loop: members with a time each, and a loop of one Lua call that moves what is due aside.

// For the client's own types.
#![recursion_limit = "512"]

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq_client_rust::{
    ClientConfig, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus,
    DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How many messages, and how many members.
const COUNT: usize = 2_000;
/// One message, and one member, every so often.
const EVERY: Duration = Duration::from_millis(10);
/// Level 1 of the default table.
const LEVEL_1_MS: i64 = 1_000;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(rocketmq), Some(redis)) = (arguments.next(), arguments.next()) else {
        eprintln!("limits: needed are the HOST:PORT of a RocketMQ nameserver and the URL of a Redis");
        std::process::exit(2);
    };
    Box::pin(native_level(&rocketmq)).await?;
    zset_loop(&redis).await
}

async fn native_level(nameserver: &str) -> Result<(), Error> {
    let owner = RuntimeOwner::plan(RuntimeConfig::for_parallelism("limits", 2))?.build()?;
    let telemetry = TelemetryRuntimeGuard::noop();
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("limits"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )?;
    let mut config = ClientConfig::new();
    config.namesrv_addr = Some(nameserver.into());
    let topic = format!("limits_{}", now_ms());

    let mut producer = DefaultMQProducer::builder(runtime.clone())
        .client_config(config.clone())
        .producer_group("limits")
        .build();
    producer.start().await?;
    // Makes the topic: a consumer that starts before it learns of it only half a minute later.
    producer
        .send(Message::builder().topic(topic.as_str()).body("first").build()?)
        .await?;

    let late = Arc::new(Mutex::new(Vec::with_capacity(COUNT)));
    let mut consumer = DefaultMQPushConsumer::builder(runtime.clone())
        .client_config(config)
        .consumer_group(topic.as_str())
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .build();
    let seen = Arc::clone(&late);
    consumer.register_message_listener_concurrently(
        move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
            let now = now_ms();
            let sent = messages.iter().filter_map(|message| {
                let body = message.get_body()?;
                std::str::from_utf8(body).ok()?.parse::<i64>().ok()
            });
            if let Ok(mut seen) = seen.lock() {
                seen.extend(sent.map(|sent| now - sent - LEVEL_1_MS));
            }
            Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
        },
    );
    consumer.subscribe(topic.as_str(), "*").await?;
    consumer.start().await?;

    let mut tick = tokio::time::interval(EVERY);
    for _ in 0..COUNT {
        tick.tick().await;
        let body = now_ms().to_string();
        producer
            .send(
                Message::builder()
                    .topic(topic.as_str())
                    .body(body)
                    .delay_level(1)
                    .build()?,
            )
            .await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    consumer.shutdown().await;
    producer.shutdown().await;
    runtime.shutdown().await;
    owner.shutdown_tasks().await;
    owner.shutdown_background();
    let late = late.lock().map_err(|_| "the listener panicked")?.clone();
    report("one native level", late);
    Ok(())
}

async fn zset_loop(url: &str) -> Result<(), Error> {
    const TAKE: &str = "
        local now = redis.call('TIME')
        local ms = now[1] * 1000 + math.floor(now[2] / 1000)
        local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ms, 'LIMIT', 0, 100)
        for _, member in ipairs(due) do
            redis.call('ZREM', KEYS[1], member)
            redis.call('ZADD', KEYS[2], ms + 30000, member)
        end
        return due";
    let (due, leased) = ("limits:due", "limits:leased");
    let mut connection = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let mut members = redis::pipe();
    members.del(due).ignore().del(leased).ignore();
    let start = now_ms() + 500;
    for number in 0..COUNT {
        let at = start + i64::try_from(EVERY.as_millis())? * i64::try_from(number)?;
        members.zadd(due, format!("{at}:{number}"), at).ignore();
    }
    members.exec_async(&mut connection).await?;
    let take = redis::Script::new(TAKE);
    let mut late = Vec::with_capacity(COUNT);
    while late.len() < COUNT {
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
    report("a bare ZSET loop", late);
    Ok(())
}

fn report(what: &str, mut late: Vec<i64>) {
    late.sort_unstable();
    let percentile = |percent: usize| late.get((late.len() * percent).div_ceil(100).saturating_sub(1));
    let [p50, p99, max] = [50, 99, 100].map(|percent| percentile(percent).copied().unwrap_or(0));
    println!(
        "{what}: {} of {COUNT}; late p50 {p50} ms, p99 {p99} ms, max {max} ms",
        late.len()
    );
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
