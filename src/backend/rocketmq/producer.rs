//! Sends batches of messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_client_rust::DefaultMQProducer;
use rocketmq_model::common::message::message_single::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::masters::Masters;
use super::offers::{Offer, Way};
use crate::backend::Departure;
use crate::rocketmq::{Base, RocketMqOptions, failure, permanent, transient};
use crate::{Error, defaults};

/// How many messages of a batch are on their way at once; more bring nothing.
const IN_FLIGHT: usize = 64;

/// How long a batch may take: a little less than callers give the whole call, so that they learn which part of it
/// failed.
const PATIENCE: Duration = defaults::SEND_TIMEOUT
    .checked_sub(Duration::from_millis(100))
    .unwrap();

/// Starts a producer.
pub(super) async fn start(base: &Base, options: &RocketMqOptions) -> Result<DefaultMQProducer, Error> {
    base.producer(&options.group, PATIENCE).await
}

/// The message that brings a wake-up.
///
/// Always a fresh one: a delivered message still has the broker's own marks of its last delay.
fn message(departure: &Departure, offer: &Offer) -> Result<Message, Error> {
    let message = Message::builder()
        .topic(offer.queue.topic().clone())
        // By which people find it on the broker.
        .key(departure.wake.id.to_string())
        .body(departure.wake.encode());
    let message = match offer.way {
        Way::Level(number) => {
            let number = i32::try_from(number).map_err(|_| permanent("the level table is too long"))?;
            message.delay_level(number)
        }
        Way::Timer => {
            // A delay and not a time: the broker's own clock counts it. Up, for not a part of a ms early.
            let millis = u64::try_from(departure.delay.as_nanos().div_ceil(1_000_000));
            message.delay_millis(millis.map_err(|_| permanent("the delay is too long"))?)
        }
    };
    message
        .build()
        .map_err(|cause| permanent(format!("no message can be made of a wake-up: {cause}")))
}

/// Sends wake-ups to masters that offer their delays; gives the places in the batch that were not confirmed, and why.
///
/// One that a master does not take is sent to another one, if there is one.
pub(super) async fn send(
    producer: Arc<DefaultMQProducer>,
    masters: Arc<Masters>,
    batch: Vec<Departure>,
) -> BTreeMap<usize, Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut sending = Sending {
        producer,
        masters,
        batch,
        flights: JoinSet::new(),
        away: BTreeMap::new(),
        failed: BTreeMap::new(),
        took: BTreeSet::new(),
        missed: BTreeSet::new(),
    };
    let mut next = 0;
    loop {
        while sending.flights.len() < IN_FLIGHT && next < sending.batch.len() {
            sending.start(next, None);
            next += 1;
        }
        match timeout_at(deadline, sending.flights.join_next()).await {
            Ok(Some(Ok(flight))) => sending.landed(flight),
            // A send that panicked stays away.
            Ok(Some(Err(_))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    sending.missed.extend(sending.away.values().cloned());
    sending.masters.sent(&sending.took, &sending.missed);
    let late = |place| (place, transient("sending a wake-up was not confirmed in time"));
    let unconfirmed = sending.away.into_keys().chain(next..sending.batch.len());
    let mut failed = sending.failed;
    failed.extend(unconfirmed.map(late));
    failed
}

/// A batch on its way.
struct Sending {
    producer: Arc<DefaultMQProducer>,
    masters: Arc<Masters>,
    batch: Vec<Departure>,
    /// Ends with its tasks when the batch is abandoned.
    flights: JoinSet<Flight>,
    /// To which master each place went whose outcome is not known.
    away: BTreeMap<usize, CheetahString>,
    failed: BTreeMap<usize, Error>,
    /// The masters that took something, and those that did not take something.
    took: BTreeSet<CheetahString>,
    missed: BTreeSet<CheetahString>,
}

/// What became of one message.
struct Flight {
    place: usize,
    is_first: bool,
    result: Result<(), Error>,
}

impl Sending {
    /// Sends the wake-up at `place`, not to the master `except`.
    fn start(&mut self, place: usize, except: Option<&CheetahString>) -> bool {
        let offers = self.masters.offers();
        let departure = &self.batch[place];
        let prepared = match offers.choose(departure.delay, except) {
            Some(offer) => message(departure, offer).map(|message| (message, offer.queue.clone())),
            None => Err(match offers.check(departure.delay) {
                Ok(()) => transient("no broker that holds the delay takes messages"),
                Err(allowed) => Error::invalid("delay", format_args!("{:?}", departure.delay), allowed),
            }),
        };
        match prepared {
            Ok((message, queue)) => {
                let producer = self.producer.clone();
                let is_first = except.is_none();
                self.away.insert(place, queue.broker_name().clone());
                self.flights.spawn(Box::pin(async move {
                    let result = match producer.send_to_queue(message, queue).await {
                        // Every status means that it is stored. Those other than "ok" say that it was not flushed or
                        // copied in time, and a wake-up that a crash then loses is the sweep's.
                        Ok(Some(_)) => Ok(()),
                        Ok(None) => Err(transient("sending a wake-up had no outcome")),
                        Err(cause) => Err(failure("sending a wake-up", cause)),
                    };
                    Flight {
                        place,
                        is_first,
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

    fn landed(&mut self, flight: Flight) {
        let Some(master) = self.away.remove(&flight.place) else {
            return;
        };
        let Err(error) = flight.result else {
            self.took.insert(master);
            return;
        };
        let is_transient = error.is_transient();
        if !(flight.is_first && self.start(flight.place, Some(&master))) {
            self.failed.insert(flight.place, error);
        }
        if is_transient {
            self.missed.insert(master);
        }
    }
}
