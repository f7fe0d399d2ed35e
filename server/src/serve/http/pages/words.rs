//! Times, counts and answers, as people say them.

use std::time::Duration;

use delayline::{Answer, Timestamp};

use crate::digits::grouped;
use crate::time::{distance, span};

/// A time, and how far it is from now.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// In RFC 3339, for machines.
    pub(super) exact: String,
    /// To the second.
    pub(super) short: String,
    /// Such as `in 4 m 10 s`.
    pub(super) distance: String,
}

impl Moment {
    pub(super) fn of(time: Timestamp, now: Timestamp) -> Self {
        let exact = time.to_string();
        let short = exact.get(..19).unwrap_or(&exact).replace('T', " ");
        Self {
            exact,
            short,
            distance: distance(time, now),
        }
    }
}

/// A part of a sentence.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Time(Moment),
}

/// Takes the times in a sentence apart.
pub(super) fn pieces(words: &str, now: Timestamp) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    for word in words.split_inclusive(' ') {
        let bare = word.trim_end_matches([' ', '.', ',', ';', ':', ')']);
        // A text of a task is left as it is, also if it is a year.
        let time = Some(bare).filter(|bare| bare.len() >= 20 && bare.ends_with('Z'));
        match time.and_then(|time| time.parse().ok()) {
            Some(time) => {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Time(Moment::of(time, now)));
                text.push_str(&word[bare.len()..]);
            }
            None => text.push_str(word),
        }
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// How long something lasted, by its two largest units: `4 m 10 s`.
pub(super) fn lasted(duration: Duration) -> String {
    span(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// Up to so many tasks are counted of one kind and state, at the most.
pub(super) const COUNTED: usize = 10_000;

/// How many tasks there are: that many or more, if some were not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) tasks: usize,
    pub(super) are_more: bool,
}

impl Count {
    /// Of what was counted up to so many.
    pub(super) fn bounded(tasks: usize, most: usize) -> Self {
        Self {
            tasks,
            are_more: tasks >= most,
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.tasks += more.tasks;
        self.are_more |= more.are_more;
    }

    pub(super) fn is_zero(&self) -> bool {
        self.tasks == 0
    }

    /// `1 task is`, `3 tasks are`.
    pub(super) fn are(&self) -> String {
        match (self.tasks, self.are_more) {
            (1, false) => "1 task is".to_owned(),
            _ => format!("{self} tasks are"),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plus = if self.are_more { "+" } else { "" };
        write!(f, "{}{plus}", grouped(self.tasks))
    }
}

/// What was done and what came of it, as a code that an address can have.
pub(super) fn code(verb: &str, answer: &Answer) -> String {
    format!("{verb}.{}", answer.word())
}

/// What a page says of what was just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) is_done: bool,
    /// Whether it is of a cancel, which can be undone for a moment.
    pub(super) is_cancelled: bool,
    pub(super) text: &'static str,
}

/// What a code says; nothing, if it is none of ours.
pub(super) fn said(code: &str) -> Option<Said> {
    let (verb, answer) = code.split_once('.')?;
    let (is_done, text) = match (verb, answer) {
        ("cancel", "done") => (true, "Cancelled: it will not run."),
        ("run", "done") => (true, "It is due now, and starts as soon as a worker is free."),
        ("redrive", "done") => (true, "Redriven: it has another life, and is due now."),
        ("dismiss", "done") => (true, "Dismissed: it has ended for good."),
        ("move", "done") => (true, "Moved."),
        ("edit", "done") => (true, "Its payload was changed; its time is as it was."),
        ("rerun", "done") => (true, "This is the new task: it is due now."),
        ("rerun", "conflict") => (
            false,
            "Nothing was done: it has not ended, so it still comes by itself.",
        ),
        ("undo", "done") => (
            true,
            "Undone: this is the task that stands for it, due when it was.",
        ),
        ("undo", "conflict") => (
            false,
            "Not undone: a cancel can be undone for ten seconds, and if no other live task has its key by then.",
        ),
        ("pause", "done") => (true, "Paused: within a second no worker starts a task of it."),
        ("resume", "done") => (true, "Resumed: what is due starts now."),
        ("resume", "not_found") => (false, "It was not paused."),
        (_, "too_late") => (false, "Too late: it is running."),
        (_, "finished") => (false, "Nothing was changed: it has ended already."),
        ("redrive", "conflict") => (
            false,
            "Nothing was changed: it is not dead, or another live task has its key.",
        ),
        ("dismiss", "conflict") => (false, "Nothing was changed: it is not dead."),
        (_, "conflict") => (
            false,
            "Nothing was changed: another caller has changed it meanwhile.",
        ),
        (_, "not_found") => (false, "Nothing was changed: there is no such task any more."),
        _ => return None,
    };
    Some(Said {
        is_done,
        is_cancelled: code == "cancel.done",
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_a_sentence_are_told_apart() {
        let now: Timestamp = "2026-12-24T18:00:00Z".parse().unwrap();
        let pieces = pieces("Done at 2026-12-24T17:59:00.5Z, as Z said.", now);
        let told = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Time(moment) => moment.short.as_str(),
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told, ["Done at ", "2026-12-24 17:59:00", ", as Z said."]);
    }

    #[test]
    fn moments_are_told_from_now() {
        let now: Timestamp = "2026-12-24T18:00:00.250Z".parse().unwrap();
        let moment = |millis| Moment::of(now.shifted(millis), now);
        assert_eq!(moment(0).short, "2026-12-24 18:00:00");
        assert_eq!(moment(0).exact, now.to_string());
        assert_eq!(moment(-999).distance, "now");
        assert_eq!(moment(61_000).distance, "in 1 m 1 s");
        assert_eq!(moment(-61_000).distance, "1 m 1 s ago");
    }

    #[test]
    fn counts_say_whether_there_are_more() {
        let mut count = Count::bounded(COUNTED - 1, COUNTED);
        assert_eq!(count.to_string(), "9,999");
        count.add(Count::bounded(1, COUNTED));
        assert_eq!(count.to_string(), "10,000", "each was counted");
        count.add(Count::bounded(COUNTED, COUNTED));
        assert_eq!(count.to_string(), "20,000+");
        assert_eq!(Count::bounded(1, COUNTED).are(), "1 task is");
    }

    #[test]
    fn only_codes_of_ours_say_something() {
        assert!(said("cancel.done").is_some_and(|said| said.is_done));
        assert_eq!(
            said("cancel.too_late").map(|said| said.text),
            Some("Too late: it is running.")
        );
        for code in ["", "cancel", "cancel.<b>", "<b>.done"] {
            assert_eq!(said(code), None, "{code}");
        }
    }
}
