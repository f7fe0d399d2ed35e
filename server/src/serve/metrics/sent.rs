//! Sends figures to a collector.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use metrics_util::registry::{Registry, Storage};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::BUCKETS;
use crate::Failure;
use crate::serve::collector::{LIMIT, resource, sending_to};
use crate::serve::config::Otlp;
use crate::serve::recent::GAUGES_LAST;

/// Records the same figures as Prometheus' recorder, and sends them to a collector periodically, from a thread of its
/// own.
#[derive(Debug)]
pub(crate) struct Sent {
    provider: SdkMeterProvider,
    instruments: Arc<Instruments>,
}

impl Sent {
    pub(super) fn start(config: &Otlp) -> Result<Self, Failure> {
        let exporter = sending_to(MetricExporter::builder().with_http(), "metrics", config)
            .build()
            .map_err(|error| Failure::Found(format!("figures cannot be sent: {error}")))?;
        let provider = SdkMeterProvider::builder()
            .with_periodic_exporter(exporter)
            .with_resource(resource(config))
            .build();
        let instruments = Arc::new(Instruments::of(provider.meter("delayline")));
        Ok(Self {
            provider,
            instruments,
        })
    }

    pub(super) fn recorder(&self) -> OtlpRecorder {
        OtlpRecorder {
            figures: Registry::new(Arc::clone(&self.instruments)),
            instruments: Arc::clone(&self.instruments),
        }
    }

    /// Sends the last figures, for some seconds at the most.
    pub(crate) async fn end(self) {
        // It waits for its thread.
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(LIMIT)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last figures could not be sent");
        }
    }
}

/// The recorder of figures.
#[derive(Debug)]
pub(super) struct OtlpRecorder {
    figures: Registry<Key, Arc<Instruments>>,
    instruments: Arc<Instruments>,
}

impl Recorder for OtlpRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        self.instruments.describe(name, unit, what);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        self.instruments.describe(name, unit, what);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        self.instruments.describe(name, unit, what);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.figures
            .get_or_create_counter(key, |counter| Counter::from_arc(Arc::clone(counter)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.figures
            .get_or_create_gauge(key, |gauge| Gauge::from_arc(Arc::clone(gauge)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.figures
            .get_or_create_histogram(key, |histogram| Histogram::from_arc(Arc::clone(histogram)))
    }
}

/// The instruments of OpenTelemetry for the figures.
#[derive(Debug)]
struct Instruments {
    meter: Meter,
    described: Mutex<HashMap<String, Described>>,
    gauges: Mutex<HashMap<String, Alike>>,
}

/// The figures of one name.
type Alike = Arc<Mutex<Vec<Arc<Held>>>>;

/// The description of a figure, in OpenTelemetry's form.
#[derive(Clone, Debug, Default)]
struct Described {
    unit: &'static str,
    what: String,
}

impl Instruments {
    fn of(meter: Meter) -> Self {
        Self {
            meter,
            described: Mutex::default(),
            gauges: Mutex::default(),
        }
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        let described = Described {
            unit: unit.map_or("", |unit| unit.as_canonical_label()),
            what: what.into_owned(),
        };
        locked(&self.described).insert(name.as_str().to_owned(), described);
    }

    fn described(&self, key: &Key) -> (String, Described) {
        let described = locked(&self.described).get(key.name()).cloned();
        (key.name().to_owned(), described.unwrap_or_default())
    }
}

impl Storage<Key> for Instruments {
    type Counter = Arc<Counted>;
    type Gauge = Arc<Held>;
    type Histogram = Arc<Measured>;

    fn counter(&self, key: &Key) -> Self::Counter {
        let (name, Described { unit, what }) = self.described(key);
        let counter = self.meter.u64_counter(name);
        Arc::new(Counted {
            counter: counter.with_unit(unit).with_description(what).build(),
            attributes: attributes(key),
        })
    }

    fn gauge(&self, key: &Key) -> Self::Gauge {
        let held = Arc::new(Held {
            value: Mutex::default(),
            attributes: attributes(key),
        });
        let (name, Described { unit, what }) = self.described(key);
        let mut gauges = locked(&self.gauges);
        let alike = gauges.entry(name).or_insert_with_key(|name| {
            let alike = Alike::default();
            let asked = Arc::clone(&alike);
            let gauge = self.meter.f64_observable_gauge(name.clone());
            let gauge = gauge.with_unit(unit).with_description(what);
            // It is read as long as there is the meter.
            let _ = gauge
                .with_callback(move |observer| {
                    for held in locked(&asked).iter() {
                        if let Some(value) = held.value() {
                            observer.observe(value, &held.attributes);
                        }
                    }
                })
                .build();
            alike
        });
        locked(alike).push(Arc::clone(&held));
        held
    }

    fn histogram(&self, key: &Key) -> Self::Histogram {
        let (name, Described { unit, what }) = self.described(key);
        let histogram = self.meter.f64_histogram(name);
        let histogram = histogram.with_unit(unit).with_description(what);
        Arc::new(Measured {
            histogram: histogram.with_boundaries(BUCKETS.to_vec()).build(),
            attributes: attributes(key),
        })
    }
}

/// A counter.
#[derive(Debug)]
struct Counted {
    counter: opentelemetry::metrics::Counter<u64>,
    attributes: Vec<KeyValue>,
}

impl CounterFn for Counted {
    fn increment(&self, value: u64) {
        self.counter.add(value, &self.attributes);
    }

    // None of the library's counters is set.
    fn absolute(&self, _: u64) {}
}

/// A gauge, with its last value.
#[derive(Debug)]
struct Held {
    value: Mutex<Option<(f64, Instant)>>,
    attributes: Vec<KeyValue>,
}

impl Held {
    /// None, if it was not set for long.
    fn value(&self) -> Option<f64> {
        let (value, told) = (*locked(&self.value))?;
        (told.elapsed() < GAUGES_LAST).then_some(value)
    }
}

impl GaugeFn for Held {
    // None of the library's gauges goes up or down by steps.
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        *locked(&self.value) = Some((value, Instant::now()));
    }
}

/// A histogram.
#[derive(Debug)]
struct Measured {
    histogram: opentelemetry::metrics::Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for Measured {
    fn record(&self, value: f64) {
        self.histogram.record(value, &self.attributes);
    }
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    let labels = key.labels();
    labels
        .map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned()))
        .collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
