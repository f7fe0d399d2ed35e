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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use metrics::Unit;
    use metrics_util::MetricKind;
    use metrics_util::debugging::DebuggingRecorder;

    use super::*;

    #[test]
    fn each_is_told_by_its_name_its_unit_and_what_it_is_told_apart_by() {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            instruments::describe();
            let level = Level {
                number: 5,
                delay: Duration::from_secs(60),
            };
            level_is_stuck("a", level, true);
            level_was_late("a", level.delay, Duration::from_millis(20));
            sent_to_broker(Stopwatch::now(), None);
            sent_to_broker(Stopwatch::now(), Some("transient"));
        });
        let snapshot = recorder.snapshotter().snapshot().into_vec();
        let told: BTreeMap<_, _> = snapshot
            .iter()
            .map(|(key, unit, description, _)| {
                assert!(description.is_some());
                let labels = key.key().labels();
                let labels: Vec<_> = labels
                    .map(|label| format!("{}={}", label.key(), label.value()))
                    .collect();
                ((key.key().name(), labels.join(" ")), (key.kind(), *unit))
            })
            .collect();
        let level = "master=a delay=1m".to_owned();
        let sent = "messaging.system=rocketmq messaging.operation.name=send".to_owned();
        let failed = format!("{sent} error.type=transient");
        let (gauge, histogram) = (
            (MetricKind::Gauge, Some(Unit::Count)),
            (MetricKind::Histogram, Some(Unit::Seconds)),
        );
        assert_eq!(
            told,
            BTreeMap::from([
                (("delayline.level.stuck", level.clone()), gauge),
                (("delayline.level.lateness", level), histogram),
                (("messaging.client.operation.duration", sent), histogram),
                (("messaging.client.operation.duration", failed), histogram),
            ])
        );
    }
}
