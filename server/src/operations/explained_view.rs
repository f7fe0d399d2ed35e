//! What has become of a task, and what comes next, as JSON.

use delayline::history::{Entry, Explanation, Leg, WakeUp};
use serde::Serialize;
use utoipa::ToSchema;

use super::TaskView;
use crate::time::Time;

/// A task, and with `explain` where it stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explained)]
pub(crate) struct ExplainedView {
    #[serde(flatten)]
    task: TaskView,
    /// In a few sentences.
    #[schema(required = false)]
    words: Vec<String>,
    /// What has happened to it, the oldest first, as far as it was noted.
    #[schema(required = false)]
    history: Vec<EntryView>,
    /// Whether there were older entries, which were dropped.
    #[schema(required = false)]
    history_cut: bool,
    /// Whether its kind is paused.
    #[schema(required = false)]
    paused: bool,
    /// The wake-up that was sent last, and which way, if that is known: whether it was taken there is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake: Option<WakeView>,
    /// The legs after it, if every one is punctual; not there if no leg is to come or they are not known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Vec<LegView>>,
}

/// One thing that has happened to a task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
struct EntryView {
    /// Of the task after it.
    version: u64,
    at: Time,
    /// What it was, in a word.
    event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_before: Option<Time>,
    due_at: Time,
    /// How its wake-up went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake: Option<LegView>,
}

/// A way that a wake-up takes to the next look at its task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Leg)]
struct LegView {
    backend: String,
    /// The broker's number of the level that holds it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<usize>,
    /// For how long it is held.
    delay_ms: u64,
}

/// A wake-up, and which way it was sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WakeUp)]
struct WakeView {
    #[serde(flatten)]
    leg: LegView,
    since: Time,
    /// If it is punctual.
    arrives_at: Time,
    /// From then on it counts as missed, and a sweep looks at the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_at: Option<Time>,
}

impl From<Explanation> for ExplainedView {
    fn from(explained: Explanation) -> Self {
        let missed_at = explained.task.wake_at.map(Time);
        let wake = |WakeUp {
                        leg,
                        since,
                        arrives_at,
                        ..
                    }| WakeView {
            leg: leg.into(),
            since: Time(since),
            arrives_at: Time(arrives_at),
            missed_at,
        };
        Self {
            task: explained.task.into(),
            words: explained.words,
            history: explained.history.into_iter().map(EntryView::from).collect(),
            history_cut: explained.is_cut,
            paused: explained.paused.is_some(),
            wake: explained.wake.map(wake),
            plan: explained
                .plan
                .map(|legs| legs.into_iter().map(LegView::from).collect()),
        }
    }
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        Self {
            version: entry.version,
            at: Time(entry.at),
            event: entry.event,
            actor: entry.actor,
            reason: entry.reason,
            attempt: entry.attempt,
            due_before: entry.due_before.map(Time),
            due_at: Time(entry.due_at),
            wake: entry.wake.map(LegView::from),
        }
    }
}

impl From<Leg> for LegView {
    fn from(leg: Leg) -> Self {
        Self {
            backend: leg.backend,
            level: leg.level,
            delay_ms: u64::try_from(leg.delay.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
