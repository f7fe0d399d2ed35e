//! A recorder of a test's own, that knows what may be recorded.

use std::collections::BTreeMap;

use metrics::Unit;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// Every instrument that needs no broker: its type, its unit, and what it is told apart by.
const INSTRUMENTS: [(&str, MetricKind, Unit, &[&str]); 9] = [
    (
        "delayline.task.lateness",
        MetricKind::Histogram,
        Unit::Seconds,
        &["kind", "woken_by"],
    ),
    (
        "delayline.tasks",
        MetricKind::Gauge,
        Unit::Count,
        &["kind", "state"],
    ),
    (
        "delayline.tasks.due",
        MetricKind::Gauge,
        Unit::Count,
        &["bound_s", "kind"],
    ),
    (
        "delayline.overdue.oldest",
        MetricKind::Gauge,
        Unit::Seconds,
        &["kind"],
    ),
    (
        "delayline.failing.oldest",
        MetricKind::Gauge,
        Unit::Seconds,
        &["kind"],
    ),
    (
        "delayline.verbs",
        MetricKind::Counter,
        Unit::Count,
        &["answer", "verb"],
    ),
    (
        "delayline.attempts",
        MetricKind::Counter,
        Unit::Count,
        &["kind", "outcome"],
    ),
    (
        "delayline.wakeups",
        MetricKind::Counter,
        Unit::Count,
        &["result", "route"],
    ),
    (
        "messaging.process.duration",
        MetricKind::Histogram,
        Unit::Seconds,
        &["kind", "messaging.operation.name", "messaging.system", "outcome"],
    ),
];

/// What was recorded of an instrument, by its labels' values in the order of their names.
pub(crate) type Told<T> = BTreeMap<String, T>;

/// Records what this thread tells, as long as what [`metrics::set_default_local_recorder`] gives is there.
pub(crate) struct Recorder(DebuggingRecorder);

/// What was recorded since it was last asked for.
#[derive(Debug)]
pub(crate) struct Recorded(Vec<(String, String, DebugValue)>);

impl Recorder {
    pub(crate) fn new() -> Self {
        Self(DebuggingRecorder::new())
    }

    /// Lets it hear of this thread until this is dropped.
    pub(crate) fn listen(&self) -> metrics::LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(&self.0)
    }

    /// What was recorded since this was last asked for; each in its form.
    pub(crate) fn recorded(&self) -> Recorded {
        let snapshot = self.0.snapshotter().snapshot().into_vec().into_iter();
        let each = snapshot.map(|(key, unit, description, value)| {
            let name = key.key().name();
            let known = INSTRUMENTS.iter().find(|instrument| instrument.0 == name);
            let Some(&(_, kind, wanted_unit, wanted)) = known else {
                panic!("{name} is no known instrument");
            };
            let labels: BTreeMap<_, _> = key
                .key()
                .labels()
                .map(|label| (label.key(), label.value()))
                .collect();
            assert_eq!((key.kind(), unit), (kind, Some(wanted_unit)), "{name}");
            assert!(description.is_some_and(|text| !text.is_empty()), "{name}");
            assert!(labels.keys().eq(wanted), "{name}: {labels:?}");
            let values: Vec<_> = labels.into_values().collect();
            (name.to_owned(), values.join(" "), value)
        });
        Recorded(each.collect())
    }
}

impl Recorded {
    fn of<T>(&self, name: &str, value: impl Fn(&DebugValue) -> Option<T>) -> Told<T> {
        let of_name = self.0.iter().filter(|(of, ..)| of == name);
        let recorded = of_name.filter_map(|(_, labels, recorded)| Some((labels.clone(), value(recorded)?)));
        recorded.collect()
    }

    /// By how much counters have increased.
    pub(crate) fn counts(&self, name: &str) -> Told<u64> {
        self.of(name, |value| match value {
            DebugValue::Counter(count) => (*count > 0).then_some(*count),
            other => panic!("{other:?}"),
        })
    }

    /// What histograms were recorded, in ms.
    pub(crate) fn millis(&self, name: &str) -> Told<Vec<u64>> {
        self.of(name, |value| match value {
            DebugValue::Histogram(values) => {
                let millis = values.iter().map(|seconds| (seconds.0 * 1_000.0).round() as u64);
                let mut millis: Vec<_> = millis.collect();
                millis.sort_unstable();
                (!millis.is_empty()).then_some(millis)
            }
            other => panic!("{other:?}"),
        })
    }

    /// What gauges show.
    pub(crate) fn levels(&self, name: &str) -> Told<f64> {
        self.of(name, |value| match value {
            DebugValue::Gauge(level) => Some(level.0),
            other => panic!("{other:?}"),
        })
    }
}

/// What is expected.
pub(crate) fn of<T, const N: usize>(recorded: [(impl Into<String>, T); N]) -> Told<T> {
    recorded.map(|(labels, value)| (labels.into(), value)).into()
}
