//! Shares servers between running tests.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A value that takes long to start, for all tests that run at the same time. It ends with the last of them, since a
/// static is never dropped.
#[derive(Debug)]
pub(crate) struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Returns the value that another test holds, or else a new one.
    pub(crate) fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        // A test whose start failed must not fail the others.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *held = Arc::downgrade(&started);
            started
        })
    }
}
