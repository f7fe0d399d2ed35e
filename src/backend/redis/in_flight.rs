//! Counts what the polls in flight may bring.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::inbox;
use super::shards::Shard;

/// After how long a poll holds no place among the wanted wake-ups: its node may hang, and must not keep those of others
/// from being polled.
const SLOW: Duration = Duration::from_millis(100);

/// The polls in flight, at most one of each shard.
#[derive(Debug, Default)]
pub(super) struct InFlight(BTreeMap<Shard, Poll>);

#[derive(Debug)]
struct Poll {
    max: usize,
    began: Instant,
}

impl InFlight {
    /// Records a poll that may bring up to `max` wake-ups.
    pub(super) fn begin(&mut self, shard: Shard, max: usize, now: Instant) {
        self.0.insert(shard, Poll { max, began: now });
    }

    /// Records that the poll of a shard has its answer.
    pub(super) fn end(&mut self, shard: Shard) {
        self.0.remove(&shard);
    }

    /// Returns for how many of the wanted wake-ups no poll is in flight that may still be quick. With slow ones, no more
    /// are asked for than are held without a receiver.
    pub(super) fn room(&self, wanted: usize, now: Instant) -> usize {
        let all: usize = self.0.values().map(|poll| poll.max).sum();
        let quick: usize = self.quick(now).map(|poll| poll.max).sum();
        wanted.saturating_sub(quick).min(inbox::MOST.saturating_sub(all))
    }

    /// Returns when the next poll turns out to be slow, unless it has its answer before.
    pub(super) fn next_slow(&self, now: Instant) -> Option<Instant> {
        self.quick(now).map(|poll| poll.began + SLOW).min()
    }

    fn quick(&self, now: Instant) -> impl Iterator<Item = &Poll> {
        self.0.values().filter(move |poll| now < poll.began + SLOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_poll_gives_its_place_back_to_other_shards() {
        let (mut polls, now) = (InFlight::default(), Instant::now());
        polls.begin(Shard(0), 1, now);
        assert_eq!((polls.room(1, now), polls.next_slow(now)), (0, Some(now + SLOW)));
        let later = now + SLOW;
        assert_eq!((polls.room(1, later), polls.next_slow(later)), (1, None));
        polls.begin(Shard(1), 1, later);
        assert_eq!(polls.room(1, later), 0);
        polls.end(Shard(1));
        assert_eq!(polls.room(1, later), 1);
        polls.end(Shard(0));
        assert_eq!(polls.room(3, now), 3);
    }

    #[test]
    fn slow_polls_ask_for_no_more_than_may_wait_for_a_receiver() {
        let (mut polls, mut now) = (InFlight::default(), Instant::now());
        for number in 0..10 {
            let max = polls.room(500, now);
            polls.begin(Shard(number), max, now);
            now += SLOW;
        }
        let all: usize = polls.0.values().map(|poll| poll.max).sum();
        assert_eq!((all, polls.room(500, now)), (inbox::MOST, 0));
    }
}
