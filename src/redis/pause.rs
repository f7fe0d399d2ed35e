//! How long to wait after failures.

use std::time::Duration;

/// The wait after a first failure; it doubles with every further one.
const FIRST: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST: Duration = Duration::from_secs(2);

/// The wait after so many failures before this one. Half of it is chance, so that a fleet does not come back at one
/// moment.
pub(crate) fn pause(failures: u32) -> Duration {
    let longest = FIRST.saturating_mul(1 << failures.min(10)).min(LONGEST);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}
