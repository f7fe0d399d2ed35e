//! How far a probe of levels has come.

use std::fmt;
use std::time::Duration;

use delayline::delay::Spelled;

/// The progress.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    Warming,
    Probing {
        sent: usize,
        arrived: usize,
        total: usize,
        /// Until the last one is due.
        left: Duration,
    },
    Ended,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Warming => f.write_str("waiting for the first messages"),
            Self::Probing {
                sent,
                arrived,
                total,
                left,
            } => {
                let left = Duration::from_secs(left.as_secs());
                write!(
                    f,
                    "{sent} of {total} probes sent, {arrived} arrived, about {} to go",
                    Spelled(left)
                )
            }
            Self::Ended => Ok(()),
        }
    }
}
