//! Waits for what a server does by itself.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take: a test must not hang. Sentinels take their time: one whose machine stood still for two
/// seconds promotes no replica for the next thirty.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Returns what `look` returns, once it returns something.
pub(super) fn until<T>(wished: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "within {PATIENCE:?} not: {wished}");
        thread::sleep(Duration::from_millis(50));
    }
}
