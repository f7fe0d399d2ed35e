//! The limit: a plain producer and a plain consumer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::delay::Level;
use rocketmq_client_rust::{DefaultMQProducer, DefaultMQPushConsumer};
use rocketmq_model::common::message::MessageTrait as _;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;

use super::super::Error;
use super::super::figure::Measured;
use super::super::ledger::{Ledger, ServerClock};
use super::super::side::PATIENCE;
use super::calling::{by_callers, planned, steadily};
use super::client::Client;

/// How a message says that it has no delay.
const NO_LEVEL: usize = 0;

/// The bare client on a topic of its own.
pub(super) struct Bare {
    client: Client,
    topic: String,
}

type Sending = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Bare {
    pub(super) async fn start(nameservers: &str, topic: String) -> Result<Self, Error> {
        let client = Client::start(nameservers).await?;
        Ok(Self { client, topic })
    }

    /// How late the messages of a steady load come out of a level.
    pub(super) async fn steady(&self, tasks: usize, level: Level) -> Result<Measured, Error> {
        let clock = ServerClock::default();
        let (begin, due) = planned(clock, tasks, level.delay);
        let ledger = Arc::new(Ledger::new(clock, due));
        let mut consumer = self.consume(&ledger).await?;
        steadily(tasks, begin, self.sender(level.number)).await?;
        come(&ledger, tasks).await?;
        consumer.shutdown().await;
        Ok(Measured {
            tasks,
            late: ledger.late(),
            ..Measured::default()
        })
    }

    /// How many are sent, without a delay.
    pub(super) async fn sent(&self, most: usize, time: Duration) -> Result<Measured, Error> {
        let begun = Instant::now();
        let tasks = by_callers(most, time, self.sender(NO_LEVEL)).await?;
        Ok(Measured {
            tasks,
            seconds: Some(begun.elapsed().as_secs_f64()),
            ..Measured::default()
        })
    }

    /// How long it takes until all that come out of a level at once have come, from the first on.
    pub(super) async fn burst(&self, tasks: usize, level: Level) -> Result<Measured, Error> {
        // Only how many have come is looked at, and not how late.
        let ledger = Arc::new(Ledger::new(ServerClock::default(), vec![0; tasks]));
        let mut consumer = self.consume(&ledger).await?;
        let coming = async {
            come(&ledger, 1).await?;
            let first = Instant::now();
            come(&ledger, tasks).await?;
            Ok(first.elapsed())
        };
        let sending = by_callers(tasks, PATIENCE, self.sender(level.number));
        let (_, took) = tokio::try_join!(sending, coming)?;
        consumer.shutdown().await;
        Ok(Measured {
            tasks,
            seconds: Some(took.as_secs_f64()),
            ..Measured::default()
        })
    }

    /// Sends the message of a number.
    fn sender(&self, level: usize) -> impl Fn(usize) -> Sending + Clone + Send + 'static {
        let (producer, topic) = (
            self.client.producer.clone(),
            Arc::<str>::from(self.topic.as_str()),
        );
        move |number| send(producer.clone(), Arc::clone(&topic), number, level)
    }

    /// Tells a ledger of the messages that come.
    async fn consume(&self, ledger: &Arc<Ledger>) -> Result<DefaultMQPushConsumer, Error> {
        let seen = Arc::clone(ledger);
        let listen = move |messages: &[&MessageExt]| {
            for number in messages.iter().filter_map(|message| number(message)) {
                seen.start(number);
            }
        };
        self.client.consume(&self.topic, listen).await
    }

    pub(super) async fn close(self) {
        self.client.close().await;
    }
}

/// Apart from who awaits it: the client's own futures are large.
fn send(producer: DefaultMQProducer, topic: Arc<str>, number: usize, level: usize) -> Sending {
    Box::pin(async move {
        let message = Message::builder()
            .topic(&*topic)
            // As long as a payload.
            .body(format!("{number:<100}"))
            .delay_level(i32::try_from(level)?)
            .build()?;
        producer.send(message).await?;
        Ok(())
    })
}

fn number(message: &MessageExt) -> Option<usize> {
    let body = message.get_body()?;
    std::str::from_utf8(body).ok()?.trim_end().parse().ok()
}

/// Waits until so many have come.
async fn come(ledger: &Ledger, tasks: usize) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    while ledger.started() < tasks {
        if Instant::now() >= end {
            let come = ledger.started();
            return Err(format!("{come} of {tasks} messages of the bare client have come").into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
