//! How long a claim holds, as far as its worker knows.

use std::time::Duration;

use crate::clock::Moment;
use crate::task::timestamp::millis;
use crate::{Timestamp, defaults};

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

/// How far what is believed of the store's clock may go back without a step of it: as long as an answer takes.
const UNSTEPPED: Duration = Duration::from_millis(250);

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

    /// Replaces the lease, unless the answer belongs to an earlier request: answers come in any order, and the store moves
    /// the end of a lease to an earlier time where its clock was stepped back meanwhile.
    pub(crate) fn renew(&mut self, renewed: Self) {
        if renewed.asked.instant() >= self.asked.instant() {
            *self = renewed;
        }
    }

    /// Makes it hold no more until it is renewed, if that should have happened by now.
    pub(super) fn end_if_late(&mut self, now: &Moment) {
        if self.asked.until(now) >= self.length / defaults::RENEWALS {
            self.length = Duration::ZERO;
        }
    }

    /// Whether the claim is surely still this worker's. If not, nothing may start by it until it has been renewed.
    pub(crate) fn holds(&self, now: &Now) -> bool {
        self.asked.until(&now.moment) < self.length
            && now
                .store
                .is_none_or(|store| store < self.until && !self.is_from_the_future(store))
    }

    /// Whether the store's clock was stepped back since it was given. Then a worker that removes history may mend it, to end
    /// earlier by that clock than is known here, and a step forwards may end it unseen; until it has been renewed.
    fn is_from_the_future(&self, store: Timestamp) -> bool {
        store < self.until.shifted(-millis(self.length + UNSTEPPED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_overtaken_does_not_bring_back_an_older_lease() {
        const LENGTH: Duration = Duration::from_secs(30);
        let (clock, noon) = (Clock::simulated(1), Timestamp::from_millis(43_200_000));
        let older = Lease::new(clock.moment(), noon, LENGTH);
        clock.sleep(Duration::from_secs(4)).await;
        // The store's clock is an hour behind, so the lease of the row ends an hour earlier from here on.
        let newer = Lease::new(clock.moment(), noon.shifted(-3_600_000), LENGTH);
        for (first, then) in [(older, newer), (newer, older)] {
            let mut lease = first;
            lease.renew(then);
            let now = |store| Now {
                moment: clock.moment(),
                store: Some(store),
            };
            assert!(lease.holds(&now(noon.shifted(-3_600_000))));
            assert!(!lease.holds(&now(noon.shifted(5_000))));
        }
    }
}
