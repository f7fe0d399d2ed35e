//! What was recorded, for tests.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// The value of each series, in the order of what distinguishes it.
pub(crate) fn recorded(recorder: &DebuggingRecorder) -> Vec<(String, DebugValue)> {
    let snapshot = recorder.snapshotter().snapshot().into_vec().into_iter();
    let recorded = snapshot.map(|(key, _, _, value)| {
        let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
        (labels.join(" "), value)
    });
    let mut recorded: Vec<_> = recorded.collect();
    recorded.sort_by(|one, other| one.0.cmp(&other.0));
    recorded
}
