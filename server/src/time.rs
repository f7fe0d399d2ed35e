//! Times, as requests and answers have them.

use delayline::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

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
