//! Times, as people write them into a form.

use delayline::Shift;
use delayline::store::{Action, When};

use super::super::problem::Problem;
use super::super::schedule::Time;
use crate::span::{Span, signed};

/// Where to a task is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Time(When),
    By(Shift),
}

impl To {
    /// A time, a span from now, or a span with its sign.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        if let Some(by) = signed(text) {
            return Ok(Self::By(by));
        }
        when(text).map(Self::Time).ok_or_else(|| {
            let allowed = "allowed are a span from now such as 15m, a span from its own time such as +10m or -2h, and a time \
                           such as 2026-12-24T18:00:00Z";
            Problem::invalid("the time", text, allowed)
        })
    }
}

impl From<To> for Action {
    fn from(to: To) -> Self {
        match to {
            To::Time(when) => Self::Reschedule(when),
            To::By(by) => Self::Shift(by),
        }
    }
}

/// A time, or a span from now.
pub(super) fn time(text: &str) -> Result<When, Problem> {
    when(text).ok_or_else(|| {
        let allowed = "allowed are a span from now such as 2h, and a time such as 2026-12-24T18:00:00Z";
        Problem::invalid("the time", text, allowed)
    })
}

fn when(text: &str) -> Option<When> {
    if let Ok(Span(delay)) = text.parse() {
        return Some(When::After(delay));
    }
    let Time(at) = Time::try_from(text.to_owned()).ok()?;
    Some(When::At(at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_move_is_by_its_sign_from_now_or_to_a_time() {
        let span = Duration::from_secs(600);
        let to = |text| To::parse(text).unwrap();
        assert_eq!(to("+10m"), To::By(Shift::Later(span)));
        assert_eq!(to("-10m"), To::By(Shift::Earlier(span)));
        assert_eq!(to("10m"), To::Time(When::After(span)));
        let at = "2026-12-24T18:00:00Z";
        assert_eq!(to(at), To::Time(When::At(at.parse().unwrap())));
        assert_eq!(time(at).unwrap(), When::At(at.parse().unwrap()));
        for text in ["", "tomorrow", "+", "10", "2026-12-24"] {
            assert!(To::parse(text).is_err(), "{text}");
            assert!(time(text).is_err(), "{text}");
        }
        assert!(time("+10m").is_err(), "a kind has no time of its own");
    }
}
