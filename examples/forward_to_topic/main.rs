//! Cancels unpaid orders on time by a consumer that knows nothing of this library: delayline publishes due tasks to the
//! service's own topic, and the consumers of that topic, in Java, Go or here, stay as they are.
//!
//! ```sh
//! scripts/rocketmq start DIR
//! cargo run --example forward_to_topic --features rocketmq -- --rocketmq "$(cat DIR/namesrv)"
//! ```
//!
//! The topic is the service's, so it must exist. This example creates its own, and removes nothing.

// For the bare client of the consumer; delayline needs none.
#![recursion_limit = "512"]

mod consumer;

use std::time::Duration;

use clap::Parser;
use delayline::clock::Clock;
use delayline::store::SqliteStore;
use delayline::{Forward, NewTask, Policy, Scheduler, Worker};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Schedule orders, and publish each to a RocketMQ topic when it is due.
#[derive(Debug, Parser)]
struct Options {
    /// A nameserver of RocketMQ
    #[arg(long, value_name = "HOST:PORT")]
    rocketmq: String,
    /// The service's own topic
    #[arg(long, default_value = "order_timeouts")]
    topic: String,
    /// How many orders
    #[arg(long, default_value_t = 8)]
    orders: u32,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let options = Options::parse();
    // The other side: a consumer like any other.
    let mut consumer = Box::pin(consumer::start(&options.rocketmq, &options.topic, "cancel")).await?;

    let forward = Forward::connect(options.rocketmq.as_str(), options.topic.as_str())
        .await?
        .tag("cancel")
        .property("source", "shop")
        .by_key();
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(&folder.path().join("orders.db")).await?;
    let scheduler = Scheduler::new(store);
    let worker = Worker::new(&scheduler).forward("order.cancel", Policy::default(), forward.clone());
    let worker = tokio::spawn(worker.run());

    for order in 1..=options.orders {
        let delay = Duration::from_millis(500 * u64::from(order));
        let task = NewTask::new("order.cancel", &serde_json::json!({ "order": order }))
            .key(format!("order-{order}"))
            .after(delay);
        let scheduled = scheduler.schedule(task).await?;
        println!("scheduled  order-{order}, due at {}", scheduled.task().due_at);
    }
    for _ in 0..options.orders {
        let message = consumer.receive().await?;
        let due: i64 = message.property("DELAYLINE_DUE_AT").parse()?;
        println!(
            "consumed   {} of queue {}: {}, {} ms after its time, attempt {}",
            message.property("DELAYLINE_KEY"),
            message.queue,
            message.body,
            Clock::system().now().as_millis() - due,
            message.property("DELAYLINE_ATTEMPT"),
        );
    }
    worker.abort();
    scheduler.close().await?;
    forward.close().await;
    Box::pin(consumer.close()).await;
    Ok(())
}
