//! Receives messages that other producers send to our topics.

mod consuming;
mod first_stored;
mod group_offset;
mod queue_order;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rocketmq_model::common::message::message_ext::MessageExt;
use tokio::task::JoinHandle;

use self::consuming::Consumer;
use self::queue_order::{Queue, QueueOrder, WaitLimits};
use super::{
    Client, ClientFactory, Delivered, DeliveryQueue, Hidden, Listener, Received, RocketMqOptions, joined,
};
use crate::Error;

/// For how long messages are held for their receiver: without end. A message that is given back to a broker comes again
/// as a copy that is stored anew, and after 16 times never again.
const HOLD: Duration = Duration::MAX;
/// How many bytes of bodies are returned at once, and one message more: a few may be compressed into very little.
const BYTES: usize = 32 << 20;
/// How many batches a receiver may hold at once: some hundred messages, as many as go well into one call of a store.
const BATCHES: usize = 16;

/// Receives the messages of topics, and holds each until it is acknowledged.
///
/// The processes of one consumer group share the messages. Those of one queue come in the order in which their broker
/// stored them. A message that is not acknowledged is held, and comes again where this process ends, or its broker has
/// been away.
pub struct Inbox(
    /// Its type hidden: see `RocketMqBackend`.
    Arc<dyn Receives>,
);

trait Receives: Send + Sync {
    fn receive(&self, max: usize) -> Hidden<'_, Result<Vec<Received>, Error>>;

    fn acknowledge(&self, messages: &[Received]);

    fn close(&self) -> Hidden<'_, ()>;
}

impl Inbox {
    /// Connects to the nameservers and starts to receive messages of `topics`, which are created on every master that
    /// lacks them. The options' group is the receiving one; their topic, and those for wake-ups, are ignored.
    pub async fn connect(
        options: impl Into<RocketMqOptions>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, Error> {
        let topics = topics.into_iter().map(Into::into).collect();
        Self::open(options.into(), topics).await
    }

    /// Separate from `connect`, which is compiled where it is called.
    fn open(options: RocketMqOptions, topics: Vec<String>) -> Hidden<'static, Result<Self, Error>> {
        Box::pin(async move {
            let Some(first) = topics.first() else {
                return Err(Error::invalid("topics", "empty", "allowed is one topic or more"));
            };
            for topic in &topics {
                super::names::check_topic(topic)?;
            }
            let intake = Arc::new(Intake {
                delivery_queue: DeliveryQueue::new(HOLD),
                order: QueueOrder::new(WaitLimits::default()),
                factory: OnceLock::new(),
                group: options.group.clone(),
            });
            let longest_body = options.max_message_size;
            let options = options.topic(first);
            let opening = {
                let intake = intake.clone();
                async move |factory, options| Consumer::open(factory, options, topics, intake).await
            };
            let (client, consumer) = Client::open(options, opening).await?;
            let watching = client.spawn({
                let consumer = consumer.clone();
                async move { consumer.keep_up().await }
            });
            Ok(Self(Arc::new(Connected {
                client,
                consumer,
                intake,
                longest_body,
                left: Mutex::default(),
                watching: Mutex::new(Some(watching)),
            })))
        })
    }

    /// Waits for messages and takes up to `max`. An error only when this is closed.
    pub async fn receive(&self, max: usize) -> Result<Vec<Received>, Error> {
        self.0.receive(max).await
    }

    /// Acknowledges messages: they do not come again unless this process ends within seconds.
    pub fn acknowledge(&self, messages: &[Received]) {
        self.0.acknowledge(messages);
    }

    /// Ends receiving. Messages that were received and not acknowledged are left to other processes of the group.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

struct Connected {
    client: Client,
    consumer: Arc<Consumer>,
    intake: Arc<Intake>,
    longest_body: usize,
    /// Taken, and not returned yet.
    left: Mutex<VecDeque<Delivered<Queued>>>,
    /// Until closed.
    watching: Mutex<Option<JoinHandle<()>>>,
}

impl Receives for Connected {
    fn receive(&self, max: usize) -> Hidden<'_, Result<Vec<Received>, Error>> {
        Box::pin(async move {
            loop {
                let next = self.next(max);
                if !next.is_empty() || max == 0 {
                    return Ok(next);
                }
                let taken = self.intake.delivery_queue.take(max).await?;
                self.left().extend(taken);
            }
        })
    }

    fn acknowledge(&self, messages: &[Received]) {
        let tickets = messages.iter().map(|message| message.ticket);
        self.intake.delivery_queue.acknowledge(tickets);
    }

    fn close(&self) -> Hidden<'_, ()> {
        Box::pin(async {
            self.intake.delivery_queue.close();
            self.left().clear();
            let watching = self
                .watching
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let Some(watching) = watching else { return };
            watching.abort();
            let consumer = self.consumer.clone();
            let closing = self.client.spawn(async move {
                // A consumer that is half started cannot be closed.
                let _ended = watching.await;
                consumer.close().await;
            });
            // An error says that the runtime has ended.
            let _ended = joined(closing).await;
            // Only now: a batch that was answered earlier would count as consumed.
            self.intake.delivery_queue.release();
            self.client.close().await;
        })
    }
}

/// Without a close, too, the client's threads end that hold batches.
impl Drop for Connected {
    fn drop(&mut self) {
        // First, so that no batch is answered as one to come again, which would be a copy stored anew.
        self.client.abandon();
        self.intake.delivery_queue.release();
    }
}

impl Connected {
    fn left(&self) -> MutexGuard<'_, VecDeque<Delivered<Queued>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next messages of those taken, with decompressed bodies.
    fn next(&self, max: usize) -> Vec<Received> {
        let (mut left, mut next, mut bytes) = (self.left(), Vec::new(), 0);
        while next.len() < max && bytes < BYTES {
            let Some(Delivered { item, ticket }) = left.pop_front() else {
                break;
            };
            let mut received = item.received.expanded(self.longest_body);
            tracing::trace!(queue = ?item.queue, offset = item.offset, id = received.id, "a message is given");
            received.ticket = ticket;
            bytes += received.bytes();
            next.push(received);
        }
        next
    }
}

/// A message, and its place in its queue.
struct Queued {
    received: Received,
    queue: Arc<Queue>,
    offset: i64,
}

/// The messages of one consumer after the other.
struct Intake {
    delivery_queue: DeliveryQueue<Queued>,
    order: QueueOrder,
    /// For requests to brokers; none before the first consumer starts.
    factory: OnceLock<ClientFactory>,
    group: String,
}

impl Intake {
    fn received(&self, message: &MessageExt) -> Received {
        let mut received = Received::of_client(message);
        if let Some(factory) = self.factory.get()
            && let Some(first) = first_stored::first_stored_at(factory, message)
        {
            received.stored_at = first.min(received.stored_at);
        }
        received
    }

    /// Forgets the last consumer's messages that no receiver has taken, as they come again by the next, and those that
    /// it still brings. Returns the next one's listener.
    ///
    /// The client takes no answer for a consumer that has ended, and each batch would hold a thread for as long as
    /// there is no store.
    fn next_listener(self: &Arc<Self>) -> Arc<InboxListener> {
        let consumer = self.order.next_consumer(|| {
            let forgotten = self.delivery_queue.forget().into_iter();
            forgotten
                .map(|message| (Queue::clone(&message.queue), message.offset))
                .collect()
        });
        let intake = self.clone();
        Arc::new(InboxListener { intake, consumer })
    }
}

/// The listener of one consumer.
struct InboxListener {
    intake: Arc<Intake>,
    consumer: u64,
}

impl Listener for InboxListener {
    fn listen(&self, messages: &[&MessageExt]) -> bool {
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return true;
        };
        let queue = Arc::new(Queue {
            topic: first.topic().to_string(),
            broker: first.broker_name().to_owned(),
            number: first.queue_id(),
            is_of_copies: first.reconsume_times() > 0,
        });
        let queued = messages.iter().map(|message| Queued {
            received: self.intake.received(message),
            queue: queue.clone(),
            offset: message.queue_offset(),
        });
        let batch = queued.collect();
        let Intake {
            delivery_queue,
            order,
            ..
        } = &*self.intake;
        let span = (first.queue_offset(), last.queue_offset());
        let next_offset =
            || group_offset::next_offset(self.intake.factory.get()?, &self.intake.group, &queue);
        let held = order.in_turn(self.consumer, &queue, span, next_offset, || {
            delivery_queue.hand_over(batch)
        });
        held.flatten().is_some_and(|held| delivery_queue.hold(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No server is needed to hold a batch.
    async fn connected() -> Connected {
        let options = RocketMqOptions::new("127.0.0.1:1").lazy();
        let intake = Arc::new(Intake {
            delivery_queue: DeliveryQueue::new(HOLD),
            order: QueueOrder::new(WaitLimits::default()),
            factory: OnceLock::new(),
            group: options.group.clone(),
        });
        let client = Client::start(&options).await.unwrap();
        let opening = Consumer::open(client.factory(), options, vec!["t".to_owned()], intake.clone());
        let consumer = joined(client.spawn(opening)).await.unwrap().unwrap();
        Connected {
            client,
            consumer,
            intake,
            longest_body: 1,
            left: Mutex::default(),
            watching: Mutex::default(),
        }
    }

    #[tokio::test]
    async fn without_a_close_held_batches_are_let_go_with_the_inbox() {
        let inbox = connected().await;
        let intake = inbox.intake.clone();
        let queue = Arc::new(Queue {
            topic: "t".to_owned(),
            broker: "a".to_owned(),
            number: 0,
            is_of_copies: false,
        });
        let batch = vec![Queued {
            received: Received::of_client(&MessageExt::default()),
            queue,
            offset: 0,
        }];
        let held = intake.delivery_queue.hand_over(batch).unwrap();
        let (let_go, listener) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || let_go.send(intake.delivery_queue.hold(held)));
        drop(inbox);
        let held = tokio::time::timeout(Duration::from_secs(60), listener).await;
        assert!(!held.expect("it is let go").unwrap(), "it is not acknowledged");
    }
}
