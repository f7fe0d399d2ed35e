//! Sends batches of messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::{ClientError, DefaultMQProducer};
use rocketmq_model::common::message::message_single::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::masters::Masters;
use super::routing_table::{DelayProperty, Destination};
use crate::backend::{Departure, SendError};
use crate::observe::metrics::{LevelSamples, Stopwatch, sent_to_broker};
use crate::rocketmq::{ClientFactory, RocketMqOptions, failure, is_refusal, permanent, transient};
use crate::{Error, defaults};

/// How many messages of a batch are in flight at once; more bring nothing.
const IN_FLIGHT: usize = 64;

/// How long a batch may take: a little less than callers give the whole call, so that they learn which part of it
/// failed.
const BATCH_WITHIN: Duration = defaults::SEND_TIMEOUT
    .checked_sub(Duration::from_millis(100))
    .unwrap();

/// Starts a producer.
pub(super) async fn start(
    factory: &ClientFactory,
    options: &RocketMqOptions,
) -> Result<DefaultMQProducer, Error> {
    factory.producer(&options.group, BATCH_WITHIN).await
}

/// Makes the message that carries a wake-up.
///
/// Always a fresh one: a delivered message still has the broker's own marks of its last delay.
fn message(departure: &Departure, destination: &Destination) -> Result<Message, Error> {
    let message = Message::builder()
        .topic(destination.queue.topic().clone())
        // For finding it on the broker.
        .key(departure.wake.id.to_string())
        .body(departure.wake.encode());
    let message = match destination.property {
        DelayProperty::Level(number) => {
            let number = i32::try_from(number).map_err(|_| permanent("the level table is too long"))?;
            message.delay_level(number)
        }
        DelayProperty::Timer => {
            // A delay and not a time: the broker's own clock counts it. Rounded up, so that it is not early.
            let millis = u64::try_from(departure.delay.as_nanos().div_ceil(1_000_000));
            message.delay_millis(millis.map_err(|_| permanent("the delay is too long"))?)
        }
    };
    message
        .build()
        .map_err(|cause| permanent(format!("no message can be made of a wake-up: {cause}")))
}

/// Sends wake-ups to masters that have their delays.
///
/// A wake-up that a master does not take is sent to another one, if there is one.
pub(super) async fn send(
    producer: Arc<DefaultMQProducer>,
    masters: Arc<Masters>,
    level_samples: Arc<LevelSamples>,
    batch: Vec<Departure>,
) -> Result<(), SendError> {
    let deadline = Instant::now() + BATCH_WITHIN;
    let mut sending = Sending {
        producer,
        masters,
        level_samples,
        batch,
        in_flight: JoinSet::new(),
        pending: BTreeMap::new(),
        failed: BTreeMap::new(),
        took: BTreeSet::new(),
        missed: BTreeSet::new(),
    };
    let mut next = 0;
    loop {
        while sending.in_flight.len() < IN_FLIGHT && next < sending.batch.len() {
            sending.start(next, None);
            next += 1;
        }
        match timeout_at(deadline, sending.in_flight.join_next()).await {
            Ok(Some(Ok(sent))) => sending.note(sent),
            // The place of a send that panicked stays pending.
            Ok(Some(Err(_))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    sending.missed.extend(sending.pending.values().cloned());
    sending.masters.sent(&sending.took, &sending.missed);
    let late = |place| (place, transient("sending a wake-up was not confirmed in time"));
    let unconfirmed = sending.pending.into_keys().chain(next..sending.batch.len());
    let mut failed = sending.failed;
    failed.extend(unconfirmed.map(late));
    let places = failed.keys().copied().collect();
    match failed.pop_first() {
        None => Ok(()),
        Some((_, cause)) => Err(SendError {
            failed: places,
            cause,
        }),
    }
}

/// A batch in flight.
struct Sending {
    producer: Arc<DefaultMQProducer>,
    masters: Arc<Masters>,
    level_samples: Arc<LevelSamples>,
    batch: Vec<Departure>,
    /// Aborted with the batch.
    in_flight: JoinSet<Sent>,
    /// To which master each place went whose outcome is not known.
    pending: BTreeMap<usize, CheetahString>,
    failed: BTreeMap<usize, Error>,
    /// The masters that took something, and those that refused something.
    took: BTreeSet<CheetahString>,
    missed: BTreeSet<CheetahString>,
}

/// The outcome of one message.
struct Sent {
    place: usize,
    is_first: bool,
    /// Whether a level was to hold it.
    by_level: bool,
    since: Stopwatch,
    result: Result<(), Unsent>,
}

/// Why a message was not sent.
#[derive(Debug)]
struct Unsent {
    error: Error,
    /// Whether it counts against the master: another message would not be taken either.
    is_missed: bool,
}

impl Unsent {
    fn of(cause: ClientError) -> Self {
        let is_refused = is_refusal(&cause);
        let error = failure("sending a wake-up", cause);
        Self {
            is_missed: is_refused || error.is_transient(),
            error,
        }
    }
}

impl Sending {
    /// Sends the wake-up at `place`, not to the master `except`.
    fn start(&mut self, place: usize, except: Option<&CheetahString>) -> bool {
        let routes = self.masters.routes();
        let departure = &self.batch[place];
        let prepared = match routes.choose(departure.delay, except) {
            Some(destination) => {
                let by_level = matches!(destination.property, DelayProperty::Level(_));
                message(departure, destination).map(|message| (message, destination.queue.clone(), by_level))
            }
            None => Err(match routes.check(departure.delay) {
                Ok(()) => transient("no broker that holds the delay takes messages"),
                Err(allowed) => Error::invalid("delay", format_args!("{:?}", departure.delay), allowed),
            }),
        };
        match prepared {
            Ok((message, queue, by_level)) => {
                let producer = self.producer.clone();
                let is_first = except.is_none();
                self.pending.insert(place, queue.broker_name().clone());
                self.in_flight.spawn(Box::pin(async move {
                    let since = Stopwatch::now();
                    let result = match producer.send_to_queue(message, queue).await {
                        // Every status means that it is stored. Those other than "ok" say that it was not flushed or
                        // copied in time, and the sweep replaces a wake-up that a crash then loses.
                        Ok(Some(_)) => Ok(()),
                        Ok(None) => Err(Unsent {
                            error: transient("sending a wake-up had no outcome"),
                            is_missed: true,
                        }),
                        Err(cause) => Err(Unsent::of(cause)),
                    };
                    sent_to_broker(since, result.as_ref().err().map(|unsent| unsent.error.sort()));
                    Sent {
                        place,
                        is_first,
                        by_level,
                        since,
                        result,
                    }
                }));
                true
            }
            Err(error) => {
                self.failed.insert(place, error);
                false
            }
        }
    }

    fn note(&mut self, sent: Sent) {
        let Some(master) = self.pending.remove(&sent.place) else {
            return;
        };
        let Err(Unsent { error, is_missed }) = sent.result else {
            if sent.by_level {
                let Departure { wake, delay } = &self.batch[sent.place];
                self.level_samples.sent(wake, &master, *delay, sent.since);
            }
            self.took.insert(master);
            return;
        };
        if !(sent.is_first && self.start(sent.place, Some(&master))) {
            self.failed.insert(sent.place, error);
        }
        if is_missed {
            self.missed.insert(master);
        }
    }
}

#[cfg(test)]
mod tests {
    use rocketmq_client_rust::MQClientException;

    use super::*;

    #[test]
    fn a_master_that_denies_access_is_left_out_like_one_that_fails() {
        // Busy, denied, and a message that no broker takes.
        for (code, is_missed) in [(2, true), (16, true), (13, false)] {
            let unsent = Unsent::of(MQClientException::new_with_code(code, "it answers so").into());
            assert_eq!(unsent.is_missed, is_missed, "{unsent:?}");
        }
    }
}
