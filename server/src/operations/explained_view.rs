//! What has become of a task, and what comes next, as JSON.

use delayline::history::{Entry, Explanation, Leg, WakeUp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::TaskView;
use crate::time::Time;

/// A task, and with `explain` where it stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explained)]
pub(crate) struct ExplainedView {
    #[serde(flatten)]
    pub(crate) task: TaskView,
    #[serde(flatten)]
    pub(crate) standing: Standing,
}

impl<'de> Deserialize<'de> for ExplainedView {
    /// Reads it twice, as a payload that is kept byte for byte cannot be told from what is beside it by serde itself.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self {
            task: serde_json::from_str(text.get()).map_err(D::Error::custom)?,
            standing: serde_json::from_str(text.get()).map_err(D::Error::custom)?,
        })
    }
}

/// Where a task stands.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct Standing {
    /// In a few sentences.
    #[schema(required = false)]
    pub(crate) words: Vec<String>,
    /// What has happened to it, the oldest first, as far as it was noted.
    #[schema(required = false)]
    pub(crate) history: Vec<EntryView>,
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
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
pub(crate) struct EntryView {
    /// Of the task after it.
    version: u64,
    pub(crate) at: Time,
    /// What it was, in a word.
    pub(crate) event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub(crate) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_before: Option<Time>,
    pub(crate) due_at: Time,
    /// How its wake-up went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wake: Option<LegView>,
}

/// A way that a wake-up takes to the next look at its task.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Leg)]
pub(crate) struct LegView {
    pub(crate) backend: String,
    /// The broker's number of the level that holds it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<usize>,
    /// For how long it is held.
    pub(crate) delay_ms: u64,
}

/// A wake-up, and which way it was sent.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
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
            standing: Standing {
                words: explained.words,
                history: explained.history.into_iter().map(EntryView::from).collect(),
                history_cut: explained.is_cut,
                paused: explained.paused.is_some(),
                wake: explained.wake.map(wake),
                plan: explained
                    .plan
                    .map(|legs| legs.into_iter().map(LegView::from).collect()),
            },
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
