//! Durations, as arguments have them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use delayline::delay::Spelled;

/// A duration such as `250ms`, `15m` or `1h 30m`, or `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

/// The longest: about 10,000 years, as for a level.
const MAX: Duration = Duration::from_secs(3_660_000 * 86_400);

/// What is not allowed, in the line that names the argument.
#[derive(Debug, thiserror::Error)]
#[error(
    "allowed are whole numbers with a unit ms, s, m, h or d, such as 250ms, 15m or \"1h 30m\", up to 3660000d"
)]
pub(crate) struct NoSpan;

impl TryFrom<String> for Span {
    type Error = NoSpan;

    fn try_from(text: String) -> Result<Self, NoSpan> {
        text.parse()
    }
}

impl FromStr for Span {
    type Err = NoSpan;

    fn from_str(text: &str) -> Result<Self, NoSpan> {
        // `humantime` takes more than that: months, of 30.44 days, whose `M` is a slip away from the `m` of minutes;
        // what is finer than the milliseconds of a task; fractions. And it panics on a sum close to the largest
        // number of seconds, which a short text of short numbers does not reach.
        // It also joins digits over spaces: 1 30m would be 130 minutes.
        let plain = text == "0"
            || text.split(' ').all(|part| {
                part.starts_with(|c: char| c.is_ascii_digit())
                    && part.ends_with(|c: char| c.is_ascii_alphabetic())
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
            });
        let units = text
            .split(|c: char| !c.is_ascii_alphabetic())
            .all(|unit| matches!(unit, "" | "ms" | "s" | "m" | "h" | "d"));
        let short = text.len() <= 100
            && text
                .split(|c: char| !c.is_ascii_digit())
                .all(|number| number.len() <= 12);
        if !(plain && units && short) {
            return Err(NoSpan);
        }
        humantime::parse_duration(text)
            .ok()
            .filter(|&duration| duration <= MAX)
            .map(Self)
            .ok_or(NoSpan)
    }
}

/// A time span with its sign, such as `+10m` or `-2h`.
#[cfg(feature = "_store")]
pub(crate) fn signed(text: &str) -> Option<delayline::Shift> {
    let span = |text: &str| text.parse::<Span>().ok().map(|Span(span)| span);
    match text.split_at_checked(1)? {
        ("+", later) => span(later).map(delayline::Shift::Later),
        ("-", earlier) => span(earlier).map(delayline::Shift::Earlier),
        _ => None,
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Spelled(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_but_0_has_its_unit_beside_it() {
        assert_eq!("0".parse::<Span>().unwrap(), Span(Duration::ZERO));
        let hour_and_half = Duration::from_secs(90 * 60);
        for text in ["1h 30m", "1h30m", "90m"] {
            assert_eq!(text.parse::<Span>().unwrap(), Span(hour_and_half), "{text}");
        }
        for text in ["1 30m", "30m 1", "1 h", "h1", " 1h", "1h ", ""] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }
}
