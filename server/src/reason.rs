//! The reason of a change, as its caller gives it.

use std::fmt;

use delayline::Scheduler;
use serde::Deserialize;

/// How many characters it has at the most.
const LONGEST: usize = 500;

/// What is noted in the history of a task that is changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Reason(String);

impl Reason {
    /// A text, or what is wrong with it.
    pub(crate) fn within(text: String) -> Result<Self, String> {
        match text.chars().count() {
            0..=LONGEST => Ok(Self(text)),
            long => Err(format!("{long} characters long: allowed are up to {LONGEST}")),
        }
    }

    pub(crate) fn given_to(&self, scheduler: &Scheduler) -> Scheduler {
        scheduler.because(&self.0)
    }
}

/// The same, as arguments have it.
pub(crate) fn reason(text: &str) -> Result<Reason, String> {
    Reason::within(text.to_owned()).map_err(|wrong| format!("it is {wrong}"))
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::within(text).map_err(|wrong| format!("reason is {wrong}"))
    }
}
