//! What is logged, for a test to look at.
#![allow(dead_code)] // Not every test that has it asks everything of it.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing::{Level, Subscriber};
use tracing_subscriber::util::SubscriberInitExt;

/// Keeps what is logged.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// What anybody in this process logs from now on: for a test that has the process for itself.
    pub(crate) fn by_process(level: Level) -> Self {
        let logged = Self::default();
        logged.subscriber(level).init();
        logged
    }

    /// What this thread logs until the guard is dropped.
    pub(crate) fn by_thread(level: Level) -> (Self, DefaultGuard) {
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

    /// All of it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panics while writing")).into_owned()
    }

    /// How often a text is in it.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().matches(text).count()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().expect("nobody panics while writing");
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
