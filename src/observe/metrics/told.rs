//! What a recorder was told, for tests.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// The value of each series, in the order of what it is told apart by.
pub(crate) fn told(recorder: &DebuggingRecorder) -> Vec<(String, DebugValue)> {
    let snapshot = recorder.snapshotter().snapshot().into_vec().into_iter();
    let told = snapshot.map(|(key, _, _, value)| {
        let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
        (labels.join(" "), value)
    });
    let mut told: Vec<_> = told.collect();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    told
}
