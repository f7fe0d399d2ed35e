//! Records the operator's requests, and the spans in which nothing may start by them.

use std::sync::Mutex;
use std::time::Duration;

use delayline::defaults::PAUSE_SEEN;

use crate::now;

/// A request about a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is paused, until a time in ms if there is one.
    Pause {
        until: Option<i64>,
    },
    Resume,
}

/// One call. The calls about a kind go one after the other.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: &'static str,
    act: Act,
    /// By the clock of the machine, which is that of all servers, in ms.
    asked: i64,
    /// None: it is not known whether it was done.
    answered: Option<i64>,
}

/// A span in which nothing of a kind starts, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: &'static str,
    pub(crate) answered: i64,
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// After so long an unanswered call has had its effect or never will: longer than any fault lasts.
const SETTLED: i64 = 20_000;
/// How long a running process may take from checking the pauses to recording a start.
const ON_THE_WAY: Duration = Duration::from_millis(250);

/// All calls of the operator, kept here, where no fault reaches them.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<Vec<Call>>);

/// A call that is not answered yet.
pub(crate) struct Asking(usize);

impl Pauses {
    pub(crate) fn ask(&self, kind: &'static str, act: Act) -> Asking {
        let mut calls = self.0.lock().unwrap();
        calls.push(Call {
            kind,
            act,
            asked: now(),
            answered: None,
        });
        Asking(calls.len() - 1)
    }

    pub(crate) fn answer(&self, Asking(index): Asking) {
        self.0.lock().unwrap()[index].answered = Some(now());
    }

    /// Returns the spans in which nothing starts, by the answers.
    pub(crate) fn held(&self) -> Vec<Held> {
        let calls = self.0.lock().unwrap();
        let held = calls.iter().enumerate();
        held.filter_map(|(at, call)| held_by(call, &calls[..at], &calls[at + 1..]))
            .collect()
    }
}

/// Returns the span of one call, between those before it and those after it.
fn held_by(call: &Call, before: &[Call], after: &[Call]) -> Option<Held> {
    let (Act::Pause { until }, Some(answered)) = (call.act, call.answered) else {
        return None;
    };
    let of_kind = |other: &&Call| other.kind == call.kind;
    // A call whose answer was lost may be done only now, and undo this one.
    let mut before = before.iter().filter(of_kind);
    if before.any(|other| other.answered.is_none() && other.asked + SETTLED > call.asked) {
        return None;
    }
    let next = after.iter().find(of_kind).map_or(i64::MAX, |next| next.asked);
    let promised = i64::try_from((PAUSE_SEEN + ON_THE_WAY).as_millis()).unwrap();
    let held = Held {
        kind: call.kind,
        answered,
        from: answered + promised,
        until: until.unwrap_or(i64::MAX).min(next),
    };
    (held.from < held.until).then_some(held)
}

impl Held {
    pub(crate) fn forbids(&self, kind: &str, at: i64) -> bool {
        self.kind == kind && (self.from..self.until).contains(&at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: Act = Act::Pause { until: None };

    fn held(calls: &[(Act, i64, Option<i64>)]) -> Vec<(i64, i64)> {
        let call = |&(act, asked, answered)| Call {
            kind: "a",
            act,
            asked,
            answered,
        };
        let pauses = Pauses(Mutex::new(calls.iter().map(call).collect()));
        let held = pauses.held();
        held.iter().map(|held| (held.from, held.until)).collect()
    }

    #[test]
    fn nothing_starts_from_the_promised_time_after_the_answer_until_the_resume_is_asked() {
        let calls = [(FOR_EVER, 0, Some(100)), (Act::Resume, 5_000, Some(9_000))];
        assert_eq!(held(&calls), [(1_350, 5_000)]);
        let until = Act::Pause { until: Some(3_000) };
        assert_eq!(held(&[(until, 0, Some(100))]), [(1_350, 3_000)]);
        assert_eq!(held(&[(until, 0, Some(2_000))]), []);
    }

    #[test]
    fn a_call_without_an_answer_holds_nothing_nor_what_is_asked_soon_after_it() {
        assert_eq!(held(&[(FOR_EVER, 0, None)]), []);
        let after = |asked| [(Act::Resume, 0, None), (FOR_EVER, asked, Some(asked))];
        assert_eq!(held(&after(SETTLED - 1)), []);
        assert_eq!(held(&after(SETTLED)).len(), 1);
    }

    #[test]
    fn a_pause_is_of_its_kind() {
        let pauses = Pauses::default();
        let asking = pauses.ask("a", FOR_EVER);
        pauses.answer(asking);
        pauses.ask("b", Act::Resume);
        let held = pauses.held();
        assert!(held[0].forbids("a", i64::MAX - 1) && !held[0].forbids("b", i64::MAX - 1));
        assert!(!held[0].forbids("a", held[0].answered));
    }
}
