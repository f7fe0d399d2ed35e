//! Uses RocketMQ's client as services do: one producer, one push consumer, one level for each message.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use delayline::delay::LevelTable;
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
use tokio::task::JoinHandle;

/// After how long without a message the missing ones count as lost: longer than the client takes to find its broker
/// again, which is the next poll of the route 30 s later.
const LOST_AFTER: Duration = Duration::from_secs(60);

pub(crate) struct Bare {
    owner: RuntimeOwner,
    runtime: Arc<ClientRuntime>,
    producer: Arc<DefaultMQProducer>,
    consumer: DefaultMQPushConsumer,
    topic: String,
    delays: Vec<i64>,
    tally: Arc<Tally>,
}

#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    failed: AtomicU64,
    /// How late each came first, in ms, and how often it came.
    came: Mutex<BTreeMap<u64, (i64, u32)>>,
}

impl Bare {
    pub(crate) async fn start(nameserver: &str, levels: &str) -> Self {
        let levels: LevelTable = levels.parse().unwrap();
        let owner = RuntimeOwner::plan(RuntimeConfig::for_parallelism("bare", 2))
            .unwrap()
            .build()
            .unwrap();
        let telemetry = TelemetryRuntimeGuard::noop();
        let scope = owner.root_context().component("bare");
        let runtime =
            ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), telemetry.handle()).unwrap();
        let mut config = ClientConfig::new();
        config.namesrv_addr = Some(nameserver.into());
        let topic = format!("bare_{}", now_ms());
        let mut producer = DefaultMQProducer::builder(runtime.clone())
            .client_config(config.clone())
            .producer_group("bare")
            .build();
        producer.start().await.unwrap();
        // Creates the topic: a consumer that starts before it learns of it only half a minute later.
        let first = Message::builder().topic(topic.as_str()).body("first");
        producer.send(first.build().unwrap()).await.unwrap();
        let tally = Arc::new(Tally::default());
        let mut consumer = DefaultMQPushConsumer::builder(runtime.clone())
            .client_config(config)
            .consumer_group(topic.as_str())
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .build();
        let seen = tally.clone();
        consumer.register_message_listener_concurrently(
            move |messages: &[&MessageExt], _: &ConsumeConcurrentlyContext| {
                let mut came = seen.came.lock().unwrap();
                for message in messages {
                    let body = message.get_body().and_then(|body| std::str::from_utf8(body).ok());
                    // The first has none of these.
                    let Some((number, due)) = body.and_then(|body| body.split_once(' ')) else {
                        continue;
                    };
                    let late = now_ms() - due.parse::<i64>().unwrap();
                    came.entry(number.parse().unwrap()).or_insert((late, 0)).1 += 1;
                }
                Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
            },
        );
        consumer.subscribe(topic.as_str(), "*").await.unwrap();
        consumer.start().await.unwrap();
        Self {
            owner,
            runtime,
            producer: Arc::new(producer),
            consumer,
            topic,
            delays: levels
                .levels()
                .map(|level| i64::try_from(level.delay.as_millis()).unwrap())
                .collect(),
            tally,
        }
    }

    /// Sends until it is aborted.
    pub(crate) fn send_at(&self, rate: u32) -> JoinHandle<()> {
        let (producer, tally) = (self.producer.clone(), self.tally.clone());
        let (topic, delays) = (self.topic.clone(), self.delays.clone());
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
            for number in 0_u64.. {
                tick.tick().await;
                let level = fastrand::usize(..delays.len());
                let message = Message::builder()
                    .topic(topic.as_str())
                    .body(format!("{number} {}", now_ms() + delays[level]))
                    .delay_level(i32::try_from(level + 1).unwrap())
                    .build()
                    .unwrap();
                let (producer, tally) = (producer.clone(), tally.clone());
                tokio::spawn(Box::pin(async move {
                    let outcome = match producer.send(message).await {
                        Ok(Some(_)) => &tally.sent,
                        _ => &tally.failed,
                    };
                    outcome.fetch_add(1, Ordering::Relaxed);
                }));
            }
        })
    }

    /// How many sends were confirmed.
    pub(crate) fn sent(&self) -> u64 {
        self.tally.sent.load(Ordering::Relaxed)
    }

    fn came(&self) -> u64 {
        self.tally.came.lock().unwrap().len() as u64
    }

    /// Waits for the missing messages, and says what happened.
    pub(crate) async fn finish(mut self) -> String {
        let (mut last, mut came) = (Instant::now(), self.came());
        while self.came() < self.sent() && last.elapsed() < LOST_AFTER {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.came() > came {
                (last, came) = (Instant::now(), self.came());
            }
        }
        // Unfinished sends at the end, and repeats, have a little longer.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let report = self.report();
        self.consumer.shutdown().await;
        self.runtime.shutdown().await;
        self.owner.shutdown_tasks().await;
        self.owner.shutdown_background();
        report
    }

    fn report(&self) -> String {
        let came = self.tally.came.lock().unwrap();
        let mut late: Vec<_> = came.values().map(|(late, _)| *late).collect();
        late.sort_unstable();
        let of = |percent: usize| late[(late.len() * percent).div_ceil(100).saturating_sub(1)];
        let mut report = format!(
            "  failed sends {}, lost {}, come twice {}",
            self.tally.failed.load(Ordering::Relaxed),
            // A message whose answer was lost may have come all the same.
            self.sent().saturating_sub(came.len() as u64),
            came.values().filter(|(_, times)| *times > 1).count(),
        );
        if !late.is_empty() {
            let [p50, p99, max] = [50, 99, 100].map(of);
            write!(
                report,
                "\n  {} messages, late p50 {p50} ms, p99 {p99} ms, max {max} ms",
                late.len()
            )
            .unwrap();
        }
        report
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
