//! Records figures for the pages.

use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use super::{About, Kept, Recent};

/// Records the figures of one subject.
#[derive(Debug)]
struct Instrument {
    kept: Arc<Kept>,
    about: About,
}

impl Instrument {
    fn hear(&self, value: f64) {
        let now = self.kept.now();
        self.kept.figures().hear(&self.about, value, now);
    }
}

impl HistogramFn for Instrument {
    fn record(&self, value: f64) {
        self.hear(value);
    }
}

impl CounterFn for Instrument {
    fn increment(&self, value: u64) {
        self.hear(value as f64);
    }

    // None of these counters is set, and none of the gauges goes up or down by steps.
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Instrument {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.hear(value);
    }
}

impl Recent {
    fn instrument(&self, key: &Key) -> Option<Arc<Instrument>> {
        let about = About::of(key)?;
        let kept = Arc::clone(&self.0);
        Some(Arc::new(Instrument { kept, about }))
    }
}

impl Recorder for Recent {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.instrument(key).map_or_else(Counter::noop, Counter::from_arc)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.instrument(key).map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.instrument(key)
            .map_or_else(Histogram::noop, Histogram::from_arc)
    }
}
