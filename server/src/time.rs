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
