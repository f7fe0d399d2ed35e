//! What has happened to a task, as its row keeps it, and what is told of it.

mod explanation;
mod words;

use std::time::Duration;

pub use self::explanation::{Explanation, WakeUp};
use crate::Timestamp;
use crate::store::Noted;
use crate::store::line::Line;
use crate::task::timestamp::{duration, millis};

/// The short name of the backend by which a store itself is read ahead.
pub(crate) const LOOK_AHEAD: &str = "look-ahead";

/// One thing that has happened to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The version of the task after it.
    pub version: u64,
    /// When it was, by the store's clock.
    pub at: Timestamp,
    /// What it was, in a word: `scheduled`, `replaced`, `hop`, `claimed`, `retried`, `snoozed`, `again`, `released`, `moved`,
    /// `edited`, `cancelled`, `run_now`, `redriven`, `dismissed`, `done`, `dead` or `expired`; of a pause, `paused` or `resumed`; of a
    /// later release, perhaps another.
    pub event: String,
    /// Who did it: `rust` (a service, through this crate), `cli`, `api:NAME`, `page:NAME`, `gateway:GROUP`, `worker:NAME`, `check` or
    /// `sweep`; or what else was said.
    pub actor: Option<String>,
    /// Why: what a caller has said, or the error of an attempt, the first 500 characters.
    pub reason: Option<String>,
    /// Which attempt ended with it.
    pub attempt: Option<u32>,
    /// When the task was due before; none if it was not there.
    pub due_before: Option<Timestamp>,
    /// When it was due from then on.
    pub due_at: Timestamp,
    /// The wake-up that followed from it.
    pub wake: Option<Leg>,
}

/// A hop on the way of a wake-up: which backend holds it, at which level, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leg {
    /// The backend, such as `rocketmq` or `redis`.
    pub backend: String,
    /// The level of the broker that holds it, by the number that the broker knows it by; none where it is no level.
    pub level: Option<usize>,
    /// For how long it is held.
    pub delay: Duration,
}

impl Leg {
    /// As rows keep it.
    pub(crate) fn text(&self) -> String {
        let level = self
            .level
            .map_or_else(|| "-".to_owned(), |level| level.to_string());
        format!("{} {level} {}", millis(self.delay), self.backend)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let delay = duration(parts.next()?.parse().ok()?);
        let level = match parts.next()? {
            "-" => None,
            number => Some(number.parse().ok()?),
        };
        Some(Self {
            backend: parts.next()?.to_owned(),
            level,
            delay,
        })
    }
}

impl Noted {
    /// The entries of a history, the oldest first, and whether there were older ones. What cannot be read is left out.
    pub(crate) fn entries(&self) -> (Vec<Entry>, bool) {
        let is_cut = !self.history.is_empty() && !self.history.starts_with('\n');
        // What comes before the first line break is none, or the rest of one that was cut off.
        let lines = self.history.split('\n').skip(1);
        (lines.filter_map(entry).collect(), is_cut)
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut parts = line.splitn(5, ' ');
    let version: u64 = parts.next()?.parse().ok()?;
    let time = |text: &str| text.parse().map(Timestamp::from_millis).ok();
    let at = time(parts.next()?)?;
    let due_before = time(parts.next()?);
    let due_at = time(parts.next()?)?;
    let Line {
        event,
        by,
        why,
        attempt,
        wake,
    } = serde_json::from_str(parts.next()?).ok()?;
    // A caller that schedules does not know whether a row is there that it replaces.
    let event = match (&*event, due_before) {
        ("scheduled", Some(_)) => "replaced".to_owned(),
        _ => event.into_owned(),
    };
    Some(Entry {
        version,
        at,
        event,
        actor: by.map(Into::into),
        reason: why.map(Into::into),
        attempt,
        due_before,
        due_at,
        wake: wake.and_then(|wake| Leg::read(&wake)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_and_breaks_no_line() {
        let why = format!("\n\u{2028}\"{}", "ü".repeat(600));
        let text = Line {
            event: "cancelled".into(),
            why: Some(why.as_str().into()),
            ..Line::default()
        }
        .text();
        assert!(!text.contains('\n'));
        let history = format!("\n2 1 1 1 {text}");
        let noted = Noted { history };
        let (entries, is_cut) = noted.entries();
        assert!(!is_cut);
        let read = entries[0].reason.clone().unwrap();
        assert_eq!(read, why.chars().take(500).collect::<String>());
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let good = r#"7 20 10 30 {"event":"moved","by":"cli","wake":"600000 14 rocketmq","new":1}"#;
        for (garbled, is_cut) in [
            ("", false),
            (" 1 1 {}", true),
            ("\n1 2 3", false),
            ("\n1 2 3 4 {\"event\":", false),
            ("\n-1 2 3 4 {\"event\":\"done\"}", false),
            ("\n1 99999999999999999999 3 4 {\"event\":\"done\"}", false),
            ("\u{fffd}\n\n\n \n", true),
        ] {
            let history = format!("{garbled}\n{good}");
            let (entries, cut) = Noted { history }.entries();
            assert_eq!((entries.len(), cut), (1, is_cut), "{garbled:?}");
            assert_eq!(entries[0].version, 7);
            let leg = entries[0].wake.clone().unwrap();
            assert_eq!((leg.level, leg.backend.as_str()), (Some(14), "rocketmq"));
        }
        for garbled in ["", "3", "3 x redis", "x - redis", "3 -"] {
            assert_eq!(Leg::read(garbled), None, "{garbled:?}");
        }
    }
}
