//! Counts what the polls in flight may bring.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::inbox;
use super::shards::Shard;
use crate::defaults;

/// After how long a poll holds no place among the wanted wake-ups: its node may hang, and must not keep those of others
/// from being polled.
const SLOW: Duration = Duration::from_millis(100);
/// Which part of what slow polls leave one more poll may ask for: without slow ones, a whole batch.
const SHARE: usize = 2 * inbox::MOST / defaults::BATCH;

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

    /// Returns for how many of the wanted wake-ups no poll is in flight that may still be quick.
    pub(super) fn room(&self, wanted: usize, now: Instant) -> usize {
        let quick: usize = self.quick(now).map(|poll| poll.max).sum();
        wanted.saturating_sub(quick)
    }

    /// Returns how many wake-ups one more poll may ask for: the less, the more the slow polls may still bring, as no receiver
    /// may be there for those. Always some, so that a node that hangs, with however many shards, never keeps the
    /// wake-ups of others.
    ///
    /// All polls together bring less than four times [`inbox::MOST`]: three times that while one may ask for more than
    /// one, and one for each shard, of which there are up to 1,024.
    pub(super) fn most_of_one(&self, now: Instant) -> usize {
        let slow = self.0.values().filter(|poll| poll.is_slow(now));
        let slow: usize = slow.map(|poll| poll.max).sum();
        ((2 * inbox::MOST).saturating_sub(slow) / SHARE).clamp(1, defaults::BATCH)
    }

    /// Returns when the next poll turns out to be slow, unless it has its answer before.
    pub(super) fn next_slow(&self, now: Instant) -> Option<Instant> {
        self.quick(now).map(|poll| poll.began + SLOW).min()
    }

    fn quick(&self, now: Instant) -> impl Iterator<Item = &Poll> {
        self.0.values().filter(move |poll| !poll.is_slow(now))
    }
}

impl Poll {
    fn is_slow(&self, now: Instant) -> bool {
        now >= self.began + SLOW
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
    fn a_node_that_hangs_leaves_room_to_others_however_many_shards_it_has() {
        for shards in [8, 20, 340, 1_024] {
            let (mut polls, mut now) = (InFlight::default(), Instant::now());
            let mut hanging = Shard::all(shards).peekable();
            while hanging.peek().is_some() {
                let (mut room, most) = (polls.room(inbox::MOST, now), polls.most_of_one(now));
                assert!(room > 0 && most > 0);
                while room > 0
                    && let Some(shard) = hanging.next()
                {
                    let max = room.min(most);
                    polls.begin(shard, max, now);
                    room -= max;
                }
                let all: usize = polls.0.values().map(|poll| poll.max).sum();
                assert!(all < 4 * inbox::MOST, "{shards} shards: {all}");
                now += SLOW;
            }
            let few = if shards == 8 { defaults::BATCH / 2 } else { 1 };
            let room = (polls.room(inbox::MOST, now), polls.most_of_one(now));
            assert!(
                room.0 == inbox::MOST && room.1 >= few,
                "{shards} shards: {room:?}"
            );
        }
    }

    #[test]
    fn without_slow_polls_a_shard_is_asked_for_a_whole_batch() {
        let (mut polls, now) = (InFlight::default(), Instant::now());
        assert_eq!(polls.most_of_one(now), defaults::BATCH);
        polls.begin(Shard(0), inbox::MOST, now);
        assert_eq!(polls.most_of_one(now), defaults::BATCH);
    }
}
