//! Sends batches of messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::DefaultMQProducer;
use rocketmq_model::common::message::message_single::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::backend::Departure;
use crate::rocketmq::{Base, RocketMqOptions, failure, permanent, transient};
use crate::{Error, LevelTable, defaults};

/// How many messages of a batch are on their way at once; more bring nothing.
const IN_FLIGHT: usize = 64;

/// How long one message may take, and how long a batch goes on without any confirmation: a little less than callers
/// give the whole call, so that they learn which part of it failed.
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
pub(super) fn message(departure: &Departure, topic: &str, levels: &LevelTable) -> Result<Message, Error> {
    let level = levels.level_of(departure.delay).ok_or_else(|| {
        Error::invalid(
            "delay",
            format!("{:?}", departure.delay),
            format!("allowed are the broker's levels: {levels}"),
        )
    })?;
    let number = i32::try_from(level.number).map_err(|_| permanent("the level table is too long"))?;
    Message::builder()
        .topic(topic)
        // By which people find it on the broker.
        .key(departure.wake.id.to_string())
        .body(departure.wake.encode())
        .delay_level(number)
        .build()
        .map_err(|cause| permanent(format!("no message can be made of a wake-up: {cause}")))
}

/// Sends messages, each with its place in the batch; gives the places that were not confirmed, and why.
pub(super) async fn send(
    producer: Arc<DefaultMQProducer>,
    messages: Vec<(usize, Message)>,
) -> BTreeMap<usize, Error> {
    let mut deadline = Instant::now() + PATIENCE;
    let mut unconfirmed: BTreeMap<usize, Option<Error>> =
        messages.iter().map(|(place, _)| (*place, None)).collect();
    let mut messages = messages.into_iter();
    // Ends with its tasks when the batch is abandoned.
    let mut flights = JoinSet::new();
    loop {
        while flights.len() < IN_FLIGHT
            && let Some((place, message)) = messages.next()
        {
            let producer = producer.clone();
            flights.spawn(Box::pin(async move { (place, producer.send(message).await) }));
        }
        match timeout_at(deadline, flights.join_next()).await {
            Ok(Some(Ok((place, outcome)))) => match outcome {
                // Every status means that it is stored. Those other than "ok" say that it was not flushed or copied
                // in time, and a wake-up that a crash then loses is the sweep's.
                Ok(Some(_)) => {
                    unconfirmed.remove(&place);
                    deadline = Instant::now() + PATIENCE;
                }
                Ok(None) => {}
                Err(cause) => {
                    unconfirmed.insert(place, Some(failure("sending a wake-up", cause)));
                }
            },
            // A send that panicked stays unconfirmed.
            Ok(Some(Err(_))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    unconfirmed
        .into_iter()
        .map(|(place, cause)| {
            (
                place,
                cause.unwrap_or_else(|| transient("sending a wake-up was not confirmed in time")),
            )
        })
        .collect()
}
