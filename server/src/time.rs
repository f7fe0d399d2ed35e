//! Times, as requests and answers have them, and what time it is for people.

use std::sync::OnceLock;
use std::time::SystemTime;

use delayline::Timestamp;
use delayline::clock::TestClock;
use serde::{Deserialize, Serialize, Serializer};

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
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let millis = time.millis_since(now);
    let seconds = millis.unsigned_abs() / 1_000;
    let Some(largest) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return "now".to_owned();
    };
    let (size, unit) = UNITS[largest];
    let mut span = format!("{} {unit}", seconds / size);
    if let Some((next, unit)) = UNITS.get(largest + 1)
        && seconds % size >= *next
    {
        span.push_str(&format!(" {} {unit}", seconds % size / next));
    }
    match millis < 0 {
        true => format!("{span} ago"),
        false => format!("in {span}"),
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
}
