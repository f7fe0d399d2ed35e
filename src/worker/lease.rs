//! How long a claim holds, as far as its worker knows.

use std::time::Duration;

use crate::Timestamp;
use crate::clock::Moment;

/// The lease of a claim, by this process's clocks and by what it has heard of the store's.
///
/// It begins before the store was asked, so it ends here no later than there. A store's clock that is stepped forwards
/// ends it as well, as soon as that is heard of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    asked: Moment,
    length: Duration,
    /// By the store's clock; not later than its row says.
    until: Timestamp,
}

/// Now, by this process's clocks and by the store's, as far as that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    pub(crate) store: Option<Timestamp>,
}

impl Lease {
    /// One for which the store was asked at `asked`, when its clock said `store`.
    pub(crate) fn new(asked: Moment, store: Timestamp, length: Duration) -> Self {
        Self {
            asked,
            length,
            until: store.after(length),
        }
    }

    /// Whether nobody else can have the claim by now. If not, nothing may start by it until it has been renewed.
    pub(crate) fn holds(&self, now: &Now) -> bool {
        self.asked.until(&now.moment) < self.length && now.store.is_none_or(|store| store < self.until)
    }
}
