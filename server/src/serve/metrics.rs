//! Records the figures of this server: for Prometheus, for its pages, and for a collector.

#[cfg_attr(not(feature = "otlp"), path = "metrics/not_sent.rs")]
mod sent;

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use metrics_util::layers::FanoutBuilder;

pub(super) use self::sent::Sent;
use super::config::Otlp;
use super::recent::{GAUGES_LAST, Recent};
use crate::Failure;

/// The upper bounds, in seconds, of the buckets for lateness and durations.
const BUCKETS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0,
];
/// How often recorded figures are merged. Without scrapes they would take ever more memory.
const GATHER_EVERY: Duration = Duration::from_secs(5);

/// The recorder for each reader.
pub(super) struct Recorded {
    pub(super) for_prometheus: PrometheusHandle,
    pub(super) recent: Recent,
    pub(super) sent: Option<Sent>,
}

/// Begins to record. Within a runtime, and before anything that records figures is made.
pub(super) fn start(config: Option<&Otlp>) -> Result<Recorded, Failure> {
    let unrecorded =
        |error: &dyn std::error::Error| Failure::Found(format!("figures cannot be recorded: {error}"));
    let prometheus = PrometheusBuilder::new()
        .with_recommended_naming(true)
        .idle_timeout(MetricKindMask::GAUGE, Some(GAUGES_LAST))
        .set_buckets(&BUCKETS)
        .map_err(|error| unrecorded(&error))?
        .build_recorder();
    let (for_prometheus, recent) = (prometheus.handle(), Recent::start());
    let mut all = FanoutBuilder::default()
        .add_recorder(prometheus)
        .add_recorder(recent.clone());
    let config = config.filter(|config| config.metrics);
    let sent = config.map(Sent::start).transpose()?;
    if let Some(sent) = &sent {
        all = all.add_recorder(sent.recorder());
    }
    metrics::set_global_recorder(all.build()).map_err(|error| unrecorded(&error))?;
    let gathered = for_prometheus.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(GATHER_EVERY).await;
            gathered.run_upkeep();
        }
    });
    Ok(Recorded {
        for_prometheus,
        recent,
        sent,
    })
}
