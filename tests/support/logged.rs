//! Captures the log, for tests.
#![allow(dead_code)] // Not every test that has it asks everything of it.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Level, Subscriber};
use tracing_subscriber::util::SubscriberInitExt;

/// A subscriber that listens to nothing, beside those that do. `tracing` believes that a single one is that of each thread,
/// and so it remembers a place that another thread reaches first as one without a listener.
static BESIDE: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Keeps what is logged.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Everything that this process logs from now on: for a test that has the process for itself.
    pub(crate) fn by_process(level: Level) -> Self {
        let logged = Self::default();
        logged.subscriber(level).init();
        logged
    }

    /// What this thread logs until the guard is dropped.
    pub(crate) fn by_thread(level: Level) -> (Self, DefaultGuard) {
        LazyLock::force(&BESIDE);
        let logged = Self::default();
        let guard = logged.subscriber(level).set_default();
        (logged, guard)
    }

    fn subscriber(&self, level: Level) -> impl Subscriber + Send + Sync + use<> {
        let writer = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish()
    }

    /// Returns all of it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no thread panics while writing")).into_owned()
    }

    /// Counts how often a text is in it.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().matches(text).count()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().expect("no thread panics while writing");
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
