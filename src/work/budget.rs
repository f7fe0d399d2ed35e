//! How many bytes of payloads are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The bytes that are free. Below zero for a moment, where the last row of a call was larger than what was left.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicI64>);

/// Bytes that are taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    budget: Budget,
    bytes: i64,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicI64::new(signed(bytes))))
    }

    /// Whether anything is left.
    pub(crate) fn has_room(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Takes these bytes, also if fewer are left: they are there already.
    pub(crate) fn take(&self, bytes: usize) -> Taken {
        let bytes = signed(bytes);
        self.0.fetch_sub(bytes, Ordering::Relaxed);
        Taken {
            budget: self.clone(),
            bytes,
        }
    }

    /// Takes what is left, and no more than `most`.
    pub(crate) fn take_up_to(&self, most: usize) -> Taken {
        let (most, mut bytes) = (signed(most), 0);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            bytes = free.clamp(0, most);
            Some(free - bytes)
        });
        Taken {
            budget: self.clone(),
            bytes,
        }
    }
}

impl Taken {
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(0)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
