//! Writes the lines of a history.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Ending;
use crate::Task;

/// How many characters of a reason are kept.
const LONGEST_REASON: usize = 500;
/// The actor of the ends of claims by a check.
pub(crate) const CHECK: &str = "check";

/// What the library writes into a line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Line<'a> {
    pub(crate) event: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wake: Option<Cow<'a, str>>,
}

impl<'a> Line<'a> {
    pub(crate) fn of(event: &'static str, by: impl Into<Cow<'a, str>>) -> Self {
        Self {
            event: event.into(),
            by: Some(by.into()),
            ..Self::default()
        }
    }
}

impl Line<'_> {
    /// Of every lease that has ended.
    pub(crate) const EXPIRED: &'static str = r#"{"event":"expired","by":"sweep"}"#;

    pub(crate) fn claimed(owner: &str) -> String {
        Line::of("claimed", format!("worker:{owner}")).text()
    }

    /// As it is written: without a line break, and no longer than it may be.
    pub(crate) fn text(mut self) -> String {
        if let Some(why) = &mut self.why
            && let Some((end, _)) = why.char_indices().nth(LONGEST_REASON)
        {
            why.to_mut().truncate(end);
        }
        // Texts and numbers only.
        serde_json::to_string(&self).unwrap_or_default()
    }
}

impl<'a> Line<'a> {
    /// The end of a claim of a task, where that is known.
    pub(crate) fn ended(task: Option<&Task>, ending: &'a Ending) -> Self {
        let (event, why) = match ending {
            Ending::Done => ("done", None),
            Ending::Dead { error, .. } => ("dead", Some(error)),
            Ending::Retry { error, .. } => ("retried", Some(error)),
            Ending::Snooze { reason, .. } => ("snoozed", reason.as_ref()),
            Ending::Again { .. } => ("again", None),
            Ending::Release => ("released", None),
            Ending::Moved { .. } => ("moved", None),
            Ending::Cancelled => ("cancelled", None),
        };
        let owner = task.and_then(|task| task.owner.as_ref());
        let by = match (ending, owner) {
            (Ending::Moved { .. } | Ending::Cancelled, _) => CHECK.to_owned(),
            (_, Some(owner)) => format!("worker:{owner}"),
            (_, None) => "worker".to_owned(),
        };
        let no_attempt = matches!(ending, Ending::Dead { give_back: true, .. });
        let attempt = match ending {
            Ending::Dead { .. } | Ending::Retry { .. } => {
                task.map(|task| task.attempt.saturating_sub(u32::from(no_attempt)))
            }
            _ => None,
        };
        Line {
            why: why.map(|why| why.as_str().into()),
            attempt,
            ..Line::of(event, by)
        }
    }
}
