//! Tests tasks that are published to a topic of the service's own, whose consumer is the plain client.

use std::collections::BTreeMap;
use std::sync::Arc;

use delayline::clock::Clock;
use delayline::rocketmq::{Message, PublishError, Publisher};
use delayline::store::{MemoryStore, Target};
use delayline::{Forward, NewTask, Policy, Scheduled, Scheduler, State, Task, Timestamp, Worker};
use tokio::task::JoinHandle;

use super::raw::Received;
use super::servers::{BROKER, RocketMqServers};
use super::*;

const KIND: &str = "order.cancel";

/// A topic that its operator has made.
async fn made_topic(nameserver: &str, queues: u32) -> String {
    let topic = format!("orders-{}", unique());
    let raw = Raw::new(nameserver);
    raw.make_topic(&topic, queues).await;
    let known = async {
        while raw.queues(&topic).await < queues {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SAFETY, known).await.expect("the topic becomes known");
    raw.close().await;
    topic
}

/// A service whose tasks of [`KIND`] are forwarded.
struct Service {
    scheduler: Scheduler,
    worker: JoinHandle<Result<(), Error>>,
    forward: Forward,
}

impl Service {
    fn start(forward: &Forward, policy: Policy) -> Self {
        let store = Arc::new(MemoryStore::new());
        // More than a broker takes, too.
        let scheduler = Scheduler::builder(store).payload_limit(8 << 20).build().unwrap();
        let worker = Worker::new(&scheduler).forward(KIND, policy, forward.clone());
        Self {
            worker: tokio::spawn(worker.run()),
            scheduler,
            forward: forward.clone(),
        }
    }

    async fn schedule(&self, task: NewTask) -> TaskId {
        self.scheduler.schedule(task).await.unwrap().task().id
    }

    async fn row(&self, id: TaskId) -> Task {
        self.scheduler.find(Target::Id(id)).await.unwrap().unwrap()
    }

    /// Waits until the task is in `state`; returns why its last attempt failed.
    async fn until(&self, id: TaskId, state: State) -> Option<String> {
        let ended = async {
            loop {
                let row = self.row(id).await;
                if row.state == state {
                    return row.last_error;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SAFETY, ended).await.expect("it ends so")
    }

    async fn end(self) {
        self.worker.abort();
        self.scheduler.close().await.unwrap();
        self.forward.close().await;
    }
}

async fn next(received: &mut tokio::sync::mpsc::UnboundedReceiver<Received>) -> Received {
    timeout(SAFETY, received.recv())
        .await
        .expect("it arrives")
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_the_topic_gets_all_that_a_task_has() {
    let topic = made_topic(&nameserver(), 4).await;
    let forward = Forward::connect(nameserver(), topic.as_str()).await.unwrap();
    let forward = forward.tag("cancel").property("source", "shop");
    let service = Service::start(&forward, Policy::default());
    let raw = Raw::new(&nameserver());
    let (mut consumer, mut received) = raw.consume(&topic, "cancel").await;
    let due = Timestamp::from_millis(Clock::system().now().as_millis() + 700);
    let body = br#"{"order": 42, "note": "\u00e9" }"#;
    let task = NewTask::from_bytes(KIND, *body)
        .key("order-42")
        .header("traceparent", "00-abc-01")
        .at(due);
    let id = service.schedule(task).await;
    let message = next(&mut received).await;
    assert!(Clock::system().now() >= due);
    assert_eq!(message.body, body, "as it was scheduled, to the byte");
    assert_eq!(message.tag.as_deref(), Some("cancel"));
    assert_eq!(message.keys, Some(format!("{id} order-42")));
    for (name, value) in [
        ("source", "shop"),
        ("traceparent", "00-abc-01"),
        ("DELAYLINE_ID", &id.to_string()),
        ("DELAYLINE_KIND", KIND),
        ("DELAYLINE_KEY", "order-42"),
        ("DELAYLINE_ATTEMPT", "1"),
        ("DELAYLINE_DUE_AT", &due.as_millis().to_string()),
    ] {
        assert_eq!(
            message.properties.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
    service.until(id, State::Done).await;
    consumer.shutdown().await;
    raw.close().await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_keys_go_to_one_queue_and_unlike_ones_to_all() {
    let topic = made_topic(&nameserver(), 4).await;
    let forward = Forward::connect(nameserver(), topic.as_str()).await.unwrap();
    let service = Service::start(&forward.by_key(), Policy::default());
    let raw = Raw::new(&nameserver());
    let (mut consumer, mut received) = raw.consume(&topic, "*").await;
    let mut queues: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for round in 0..3 {
        let tasks = (0..20).map(|order| NewTask::new(KIND, &round).key(format!("order {order}")));
        let scheduled = service.scheduler.schedule_all(tasks).await.unwrap();
        assert!(
            scheduled.iter().all(|task| matches!(task, Scheduled::New(_))),
            "the last round is over"
        );
        for _ in 0..20 {
            let message = next(&mut received).await;
            let key = message.properties["DELAYLINE_KEY"].clone();
            queues.entry(key).or_default().extend(message.queue);
        }
        for task in scheduled {
            service.until(task.task().id, State::Done).await;
        }
    }
    assert_eq!(queues.len(), 20);
    assert!(queues.values().all(|queues| queues.len() == 1), "{queues:?}");
    let used: BTreeSet<_> = queues.values().flatten().collect();
    assert_eq!(used.len(), 4, "{queues:?}");
    consumer.shutdown().await;
    raw.close().await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_broker_takes_is_dead_at_once_and_says_why() {
    let topic = made_topic(&nameserver(), 1).await;
    let forward = Forward::connect(nameserver(), topic.as_str()).await.unwrap();
    let service = Service::start(&forward, Policy::default());
    let mut broad = NewTask::new(KIND, &1);
    for number in 0..10 {
        broad = broad.header(format!("header-{number}"), "x".repeat(4_000));
    }
    for (task, reason) in [
        (NewTask::from_bytes(KIND, *b""), "payload of 0 bytes"),
        (
            NewTask::from_bytes(KIND, vec![7; 4 * 1_024 * 1_024 + 1]),
            "payload of",
        ),
        (
            NewTask::new(KIND, &1).header("TAGS", "x"),
            "header: property is \"TAGS\"",
        ),
        // Each of them fits, and all of them together are too long.
        (broad, "properties is"),
    ] {
        let id = service.schedule(task).await;
        let why = service.until(id, State::Dead).await.unwrap();
        assert!(why.contains(reason), "{why}");
    }
    let longest = NewTask::from_bytes(KIND, vec![7; 4 * 1_024 * 1_024]);
    let id = service.schedule(longest).await;
    service.until(id, State::Done).await;
    service.end().await;

    // An error that only the broker knows is put into words.
    let allowed = RocketMqOptions::new(nameserver()).max_message_size(8 << 20);
    let forward = Forward::connect(allowed, topic.as_str()).await.unwrap();
    let service = Service::start(&forward, Policy::default());
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(5 << 20)
        .collect();
    let id = service.schedule(NewTask::from_bytes(KIND, noise)).await;
    let why = service.until(id, State::Dead).await.unwrap();
    assert!(
        why.contains("the broker does not take such a message: its body is longer"),
        "{why}"
    );
    service.end().await;
}

#[tokio::test]
async fn a_topic_that_no_broker_has_is_refused_by_name_and_not_made() {
    let topic = format!("orders-{}", unique());
    let error = Forward::connect(nameserver(), topic.as_str()).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { field: "topic", .. }), "{error}");
    assert!(error.to_string().contains(&topic), "{error}");
    let raw = Raw::new(&nameserver());
    assert_eq!(raw.queues(&topic).await, 0);
    raw.close().await;
}

#[tokio::test]
async fn a_worker_does_not_start_with_a_tag_or_a_property_that_cannot_be() {
    let topic = made_topic(&nameserver(), 1).await;
    let forward = Forward::connect(nameserver(), topic).await.unwrap();
    for (forward, field) in [
        (forward.clone().tag("a b"), "tag"),
        (forward.clone().property("KEYS", "x"), "property"),
    ] {
        let scheduler = Scheduler::new(MemoryStore::new());
        let worker = Worker::new(&scheduler).forward(KIND, Policy::default(), forward);
        let error = timeout(SAFETY, worker.run()).await.expect("at once").unwrap_err();
        assert!(error.to_string().starts_with(field), "{error}");
    }
    forward.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_while_the_broker_is_dead_arrives_when_it_is_back() {
    let servers = RocketMqServers::start(&[]);
    let topic = made_topic(&servers.nameserver, 4).await;
    let forward = Forward::connect(servers.nameserver.as_str(), topic.as_str())
        .await
        .unwrap();
    let second = Duration::from_secs(1);
    let policy = Policy::new().backoff(second, second);
    let service = Service::start(&forward.by_key(), policy);
    let order = |number: u32| NewTask::new(KIND, &number).key(format!("order {number}"));
    let before = service.scheduler.schedule_all((0..20).map(order)).await.unwrap();
    for task in &before {
        service.until(task.task().id, State::Done).await;
    }
    servers.kill(BROKER);
    let scheduled = service.scheduler.schedule_all((20..40).map(order)).await.unwrap();
    let waiting = async {
        while service.scheduler.stats().snoozed < 60 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SAFETY, waiting).await.expect("they wait for the broker");
    for task in &scheduled {
        // One that is tried again at this moment, and one before, which was under way when the broker died.
        let attempt = service.row(task.task().id).await.attempt;
        assert!(attempt <= 2, "waiting is no attempt: {attempt}");
    }
    servers.start_again();
    for task in &scheduled {
        service.until(task.task().id, State::Done).await;
    }
    let raw = Raw::new(&servers.nameserver);
    let (mut consumer, mut received) = raw.consume(&topic, "*").await;
    // At least once: messages that the killed broker had not flushed yet are its own loss.
    let mut missing: BTreeMap<_, _> = scheduled
        .iter()
        .map(|task| {
            (
                task.task().id.to_string(),
                task.task().due_at.as_millis().to_string(),
            )
        })
        .collect();
    while !missing.is_empty() {
        let message = next(&mut received).await;
        if let Some(due_at) = missing.remove(&message.properties["DELAYLINE_ID"]) {
            assert_eq!(
                message.properties["DELAYLINE_DUE_AT"], due_at,
                "the wait moves it not"
            );
        }
    }
    consumer.shutdown().await;
    raw.close().await;
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_went_missing_is_told_as_such_and_published_to_when_it_is_back() {
    // A broker that creates topics by itself: with another number of queues, and so in another order.
    let settings = [
        "--set",
        "timerWheelEnable=true",
        "--set",
        "autoCreateTopicEnable=true",
    ];
    let servers = RocketMqServers::start(&settings);
    let topic = made_topic(&servers.nameserver, 4).await;
    let forward = Forward::connect(servers.nameserver.as_str(), topic.as_str())
        .await
        .unwrap();
    let service = Service::start(&forward, Policy::default());
    let id = service.schedule(NewTask::new(KIND, &1)).await;
    service.until(id, State::Done).await;
    let raw = Raw::new(&servers.nameserver);
    raw.delete_topic(&topic).await;
    let id = service.schedule(NewTask::new(KIND, &2)).await;
    let told = async {
        loop {
            let row = service.scheduler.find(Target::Id(id)).await.unwrap().unwrap();
            if let Some(error) = row.last_error {
                return (row.attempt, error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (_, told) = timeout(SAFETY, told).await.expect("it is told");
    let expected =
        format!("the topic {topic} is missing, as none of the brokers that are known ({BROKER}) has it");
    assert!(told.contains(&expected), "{told}");
    // The client has an error of its own for a topic that it never knew, where a broker creates topics.
    let publisher = Publisher::connect(servers.nameserver.as_str()).await.unwrap();
    let error = publisher
        .publish(Message::new("never-made", *b"1"))
        .await
        .unwrap_err();
    assert!(matches!(error, PublishError::Unreachable(_)), "{error}");
    assert!(
        error.to_string().contains("the topic never-made is missing"),
        "{error}"
    );
    publisher.close().await;
    raw.make_topic(&topic, 4).await;
    service.until(id, State::Done).await;
    raw.close().await;
    service.end().await;
}
