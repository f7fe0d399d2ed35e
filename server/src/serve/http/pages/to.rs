//! What is done with tasks, and times, as people write them into a form.

use delayline::store::{Action, When};

use super::super::problem::Problem;
use super::fields::Fields;
use crate::span::{Span, signed};
use crate::time::Time;

/// What a form asks to be done with tasks, by the name that it has on pages; `None` if that is no name.
pub(super) fn action(name: &str, fields: &Fields) -> Result<Option<Action>, Problem> {
    Ok(Some(match name {
        "cancel" => Action::Cancel,
        "run" => Action::RunNow,
        "redrive" => Action::Redrive,
        "dismiss" => Action::Dismiss,
        "move" => moved(fields.one("to").unwrap_or_default())?,
        _ => return Ok(None),
    }))
}

/// A move to a time, a span from now, or by a span with its sign.
fn moved(text: &str) -> Result<Action, Problem> {
    let action = match signed(text) {
        Some(by) => Some(Action::Shift(by)),
        None => when(text).map(Action::Reschedule),
    };
    action.ok_or_else(|| {
        let allowed = "allowed are a span from now such as 15m, a span from its own time such as +10m or -2h, and a time \
                       such as 2026-12-24T18:00:00Z";
        Problem::invalid("the time", text, allowed)
    })
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

    use delayline::Shift;

    use super::*;

    #[test]
    fn a_move_is_by_its_sign_from_now_or_to_a_time() {
        let span = Duration::from_secs(600);
        let to = |text| moved(text).unwrap();
        assert_eq!(to("+10m"), Action::Shift(Shift::Later(span)));
        assert_eq!(to("-10m"), Action::Shift(Shift::Earlier(span)));
        assert_eq!(to("10m"), Action::Reschedule(When::After(span)));
        let at = "2026-12-24T18:00:00Z";
        assert_eq!(to(at), Action::Reschedule(When::At(at.parse().unwrap())));
        assert_eq!(time(at).unwrap(), When::At(at.parse().unwrap()));
        for text in ["", "tomorrow", "+", "10", "2026-12-24"] {
            assert!(moved(text).is_err(), "{text}");
            assert!(time(text).is_err(), "{text}");
        }
        assert!(time("+10m").is_err(), "a kind has no time of its own");
    }
}
