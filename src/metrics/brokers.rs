//! What is told of RocketMQ brokers.

use std::time::Duration;

use metrics::{gauge, histogram};

use super::{Stopwatch, instruments};
use crate::delay::Level;

/// Whether a level of a master has stopped delivering.
pub(crate) fn level_is_stuck(master: &str, level: Level, is_stuck: bool) {
    gauge!(
        instruments::LEVEL_STUCK,
        "master" => master.to_owned(),
        "delay" => level.to_string(),
    )
    .set(f64::from(u8::from(is_stuck)));
}

/// A master kept a wake-up so much longer than its level says.
pub(super) fn level_was_late(master: &str, delay: Duration, lateness: Duration) {
    // By whichever number it is known there.
    let level = Level { number: 0, delay };
    histogram!(
        instruments::LEVEL_LATENESS,
        "master" => master.to_owned(),
        "delay" => level.to_string(),
    )
    .record(lateness);
}

/// A message was sent to a broker, or was not, for this sort of reason.
pub(crate) fn sent_to_broker(since: Stopwatch, failed: Option<&'static str>) {
    let took = since.began().elapsed();
    match failed {
        None => histogram!(
            instruments::OPERATION_DURATION,
            "messaging.system" => "rocketmq",
            "messaging.operation.name" => "send"
        ),
        Some(sort) => histogram!(
            instruments::OPERATION_DURATION,
            "messaging.system" => "rocketmq",
            "messaging.operation.name" => "send",
            "error.type" => sort
        ),
    }
    .record(took);
}
