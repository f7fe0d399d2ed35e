//! Times, as requests and answers have them, and what time it is for people.

use std::sync::OnceLock;
use std::time::SystemTime;

use delayline::Timestamp;
use delayline::clock::TestClock;
use serde::{Deserialize, Serialize, Serializer};

use crate::digits::grouped;

/// The clock of this process that tests turn, once it has one.
static TURNED: OnceLock<TestClock> = OnceLock::new();

/// Has the time told by a clock that tests turn.
pub(crate) fn go_by(clock: TestClock) {
    let _once = TURNED.set(clock);
}

/// Tells the time by this machine's clock, or by the one that tests turn: for people.
pub(crate) fn now() -> Timestamp {
    TURNED
        .get()
        .map_or_else(|| SystemTime::now().into(), TestClock::now)
}

/// How far a time is from now, by its two largest units: `in 4 m 10 s`, `2 d ago`.
pub(crate) fn distance(time: Timestamp, now: Timestamp) -> String {
    let millis = time.millis_since(now);
    match millis {
        ..-999 => format!("{} ago", span(millis)),
        -999..=999 => "now".to_owned(),
        _ => format!("in {}", span(millis)),
    }
}

/// How long something is, by its two largest units: `4 m 10 s`.
pub(crate) fn span(millis: i64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let millis = millis.unsigned_abs();
    let Some(largest) = UNITS.iter().position(|(size, _)| millis >= *size) else {
        return format!("{millis} ms");
    };
    let (size, unit) = UNITS[largest];
    let whole = format!("{} {unit}", grouped(millis / size));
    match UNITS.get(largest + 1) {
        Some((next, name)) if millis % size >= *next => {
            format!("{whole} {} {name}", millis % size / next)
        }
        _ => whole,
    }
}

/// A time in RFC 3339.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Time(pub(crate) Timestamp);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // It has another way to write years that have no four digits.
        if text.starts_with(['-', '+']) {
            return Err(format!("time is {text:?}: allowed are the years 0000 to 9999"));
        }
        text.parse()
            .map(Self)
            .map_err(|error: delayline::Error| error.to_string())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_has_two_units_and_a_direction() {
        let now = Timestamp::from_millis(1_000_000_000_000);
        for (millis, said) in [
            (999, "now"),
            (-999, "now"),
            (1_000, "in 1 s"),
            (300_000, "in 5 m"),
            (-250_000, "4 m 10 s ago"),
            (3_601_000, "in 1 h"),
            (90_000_000, "in 1 d 1 h"),
        ] {
            assert_eq!(distance(now.shifted(millis), now), said, "{millis}");
        }
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1 s"),
            (250_000, "4 m 10 s"),
            (-250_000, "4 m 10 s"),
            (3_600_000, "1 h"),
            (3_601_000, "1 h"),
            (90_000_000, "1 d 1 h"),
            (86_400_000_000, "1,000 d"),
        ] {
            assert_eq!(span(millis), text, "{millis}");
        }
    }
}
