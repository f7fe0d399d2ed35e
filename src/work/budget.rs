//! How many bytes of payloads are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The bytes that are free: of its own, and of all those that it is a part of. Below zero for a moment, where the last row of
/// a call was larger than what was left.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<[Arc<AtomicI64>]>);

/// Bytes that are taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    budget: Budget,
    bytes: i64,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self([free(bytes)].into())
    }

    /// A part of it: what is taken of that is taken of both.
    pub(crate) fn part(&self, bytes: usize) -> Self {
        Self(self.0.iter().cloned().chain([free(bytes)]).collect())
    }

    /// Whether anything is left.
    pub(crate) fn has_room(&self) -> bool {
        self.0.iter().all(|free| free.load(Ordering::Relaxed) > 0)
    }

    /// Takes these bytes, also if fewer are left: they are there already.
    pub(crate) fn take(&self, bytes: usize) -> ReservedBytes {
        let bytes = signed(bytes);
        for free in &*self.0 {
            free.fetch_sub(bytes, Ordering::Relaxed);
        }
        ReservedBytes {
            budget: self.clone(),
            bytes,
        }
    }

    /// Takes what is left, and no more than `most`.
    pub(crate) fn take_up_to(&self, most: usize) -> ReservedBytes {
        let mut bytes = signed(most);
        for (at, free) in self.0.iter().enumerate() {
            let mut taken = 0;
            let _ = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                taken = free.clamp(0, bytes);
                Some(free - taken)
            });
            for before in &self.0[..at] {
                before.fetch_add(bytes - taken, Ordering::Relaxed);
            }
            bytes = taken;
        }
        ReservedBytes {
            budget: self.clone(),
            bytes,
        }
    }
}

impl ReservedBytes {
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(0)
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        for free in &*self.budget.0 {
            free.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

fn free(bytes: usize) -> Arc<AtomicI64> {
    Arc::new(AtomicI64::new(signed(bytes)))
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_leaves_room_for_others_and_counts_in_the_whole() {
        let all = Budget::new(10);
        let (one, other) = (all.part(6), all.part(6));
        let of_one = one.take_up_to(8);
        assert_eq!(of_one.bytes(), 6);
        assert!(!one.has_room() && other.has_room() && all.has_room());
        assert_eq!(one.take_up_to(1).bytes(), 0);
        let of_other = other.take_up_to(8);
        assert_eq!(of_other.bytes(), 4);
        // There is more of its own, and none of the whole.
        assert!(!other.has_room() && !all.has_room());
        drop(of_one);
        let (more_of_other, more_of_one) = (other.take_up_to(8), one.take_up_to(8));
        assert_eq!((more_of_other.bytes(), more_of_one.bytes()), (2, 4));
        drop((more_of_other, more_of_one));
        let more = other.take(9);
        assert!(!other.has_room() && !all.has_room() && !one.has_room());
        drop((more, of_other));
        assert_eq!(all.take_up_to(20).bytes(), 10);
    }
}
