//! Tasks that go on behind their callers.

use std::sync::{Mutex, PoisonError};

use super::Spawned;

/// Keeps one task running: from its first use on, and again from the next use after it has ended, as with its runtime.
#[derive(Debug, Default)]
pub(crate) struct Background(Mutex<Option<Spawned>>);

impl Background {
    /// Begins the task, unless it runs.
    pub(crate) fn keep(&self, begin: impl FnOnce() -> Spawned) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_none_or(Spawned::has_ended) {
            *running = Some(begin());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn it_is_begun_once_in_each_runtime_that_it_is_used_in() {
        let (background, begun) = (Background::default(), AtomicUsize::new(0));
        for runtimes in 1..4 {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for _ in 0..2 {
                    background.keep(|| {
                        begun.fetch_add(1, Ordering::Relaxed);
                        Clock::system().spawn(pending())
                    });
                }
            });
            assert_eq!(begun.load(Ordering::Relaxed), runtimes);
        }
    }
}
