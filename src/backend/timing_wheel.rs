//! Implements a hierarchical timing wheel.

/// How many bits of the time each level covers.
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
/// Enough for all 64 bits, so that every time fits.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// How many slots are in a word of the occupancy bitmap.
const WORD: usize = u64::BITS as usize;

/// No node: the end of a list.
const NONE: u32 = u32::MAX;

/// Holds values until their times, in ms since an origin of the caller's; inserts and cancels in constant time.
///
/// An entry is in the level of the highest digit (to the base 256) in which its time differs from the wheel's, in the
/// slot of that digit. So the entries of a lower level are all due before those of a higher one, level 0 has one slot
/// per ms, and no slot ever wraps round. When the wheel's time comes to a slot of an upper level, the entries in it
/// move down: each at most once per level in its life.
///
/// An entry costs 24 bytes beside its value (a wake-up), and nothing of its own on the heap.
pub(crate) struct Wheel<T> {
    /// Everything that is due before this has been returned.
    now: u64,
    /// Which slots have entries, those of the lowest level first.
    occupied: [u64; LEVELS * SLOTS / WORD],
    /// For each slot of each level, its entries, first come first.
    lists: Box<[List]>,
    nodes: Vec<Node<T>>,
    /// The first of the free nodes, which are linked by `next`.
    free: u32,
}

/// Names an entry of one wheel permanently: it never comes to mean a later entry in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    index: u32,
    generation: u32,
}

struct Node<T> {
    at: u64,
    /// One more for each entry that has been in this place.
    generation: u32,
    previous: u32,
    next: u32,
    /// None: the node is free.
    value: Option<T>,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List {
    first: NONE,
    last: NONE,
};

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            occupied: [0; LEVELS * SLOTS / WORD],
            lists: vec![EMPTY; LEVELS * SLOTS].into(),
            nodes: Vec::new(),
            free: NONE,
        }
    }

    /// Holds `value` until `at`. A time that the wheel has passed counts as the wheel's own.
    ///
    /// # Panics
    ///
    /// With more than 4,294,967,295 entries, as a `Vec` does beyond its capacity.
    pub(crate) fn insert(&mut self, at: u64, value: T) -> Entry {
        let at = at.max(self.now);
        let index = self.free;
        if index == NONE {
            let index = u32::try_from(self.nodes.len())
                .ok()
                .filter(|&index| index != NONE)
                .expect("a wheel has fewer than 2^32 entries");
            self.nodes.push(Node {
                at,
                generation: 0,
                previous: NONE,
                next: NONE,
                value: Some(value),
            });
            self.link(index);
            return Entry { index, generation: 0 };
        }
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.at = at;
        node.value = Some(value);
        let generation = node.generation;
        self.link(index);
        Entry { index, generation }
    }

    /// Removes an entry before its time; none if it has expired or was cancelled.
    pub(crate) fn cancel(&mut self, entry: Entry) -> Option<T> {
        self.held(entry)?;
        self.unlink(entry.index);
        self.release(entry.index)
    }

    /// Returns the time of an entry; none if it has expired or was cancelled.
    pub(crate) fn time_of(&self, entry: Entry) -> Option<u64> {
        self.held(entry).map(|node| node.at)
    }

    /// Returns the value of an entry; none if it has expired or was cancelled.
    pub(crate) fn value_of(&self, entry: Entry) -> Option<&T> {
        self.held(entry)?.value.as_ref()
    }

    /// Returns up to `max` of the values whose time is `now` or earlier, by their times, and those of the same time in
    /// the order in which they came. A `now` that the wheel has passed counts as the wheel's own.
    pub(crate) fn expire(&mut self, now: u64, max: usize, mut give: impl FnMut(Entry, T)) {
        let now = now.max(self.now);
        let mut left = max;
        while let Some((level, slot)) = self.first() {
            let start = self.start(level, slot);
            if start > now {
                break;
            }
            if left == 0 {
                return;
            }
            self.now = start;
            if level > 0 {
                self.move_down(level, slot);
                continue;
            }
            let index = self.lists[slot].first;
            let generation = self.nodes[index as usize].generation;
            self.unlink(index);
            if let Some(value) = self.release(index) {
                give(Entry { index, generation }, value);
            }
            left -= 1;
        }
        self.now = now;
    }

    /// Returns when to call [`expire`](Self::expire) next; none while there are no entries. Exact for an entry of the
    /// lowest level, too early for a far one (at most once for each level), never too late.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.first().map(|(level, slot)| self.start(level, slot))
    }

    fn held(&self, entry: Entry) -> Option<&Node<T>> {
        self.nodes
            .get(entry.index as usize)
            .filter(|node| node.generation == entry.generation)
    }

    /// Finds the level and slot with the earliest entries.
    fn first(&self) -> Option<(usize, usize)> {
        let word = self.occupied.iter().position(|&slots| slots != 0)?;
        let list = word * WORD + self.occupied[word].trailing_zeros() as usize;
        Some((list / SLOTS, list % SLOTS))
    }

    /// Returns the first moment of a slot.
    fn start(&self, level: usize, slot: usize) -> u64 {
        let shift = BITS * level as u32;
        let digits_above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        self.now & digits_above | (slot as u64) << shift
    }

    /// Returns the list that an entry for `at` is in now.
    fn place(&self, at: u64) -> usize {
        let level = ((at ^ self.now) | 1).ilog2() / BITS;
        let slot = (at >> (BITS * level)) as usize % SLOTS;
        level as usize * SLOTS + slot
    }

    fn move_down(&mut self, level: usize, slot: usize) {
        let list = level * SLOTS + slot;
        let mut index = std::mem::replace(&mut self.lists[list], EMPTY).first;
        self.occupied[list / WORD] &= !(1 << (list % WORD));
        while index != NONE {
            let next = self.nodes[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    fn link(&mut self, index: u32) {
        let place = self.place(self.nodes[index as usize].at);
        let list = &mut self.lists[place];
        let previous = std::mem::replace(&mut list.last, index);
        if previous == NONE {
            list.first = index;
            self.occupied[place / WORD] |= 1 << (place % WORD);
        } else {
            self.nodes[previous as usize].next = index;
        }
        let node = &mut self.nodes[index as usize];
        node.previous = previous;
        node.next = NONE;
    }

    fn unlink(&mut self, index: u32) {
        let Node {
            at, previous, next, ..
        } = self.nodes[index as usize];
        let place = self.place(at);
        let list = &mut self.lists[place];
        if previous == NONE {
            list.first = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next == NONE {
            list.last = previous;
        } else {
            self.nodes[next as usize].previous = previous;
        }
        if list.first == NONE {
            self.occupied[place / WORD] &= !(1 << (place % WORD));
        }
    }

    /// Frees an unlinked node.
    fn release(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = std::mem::replace(&mut self.free, index);
        node.value.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Time),
        /// Cancels the entry that was made as the nth of all, whether it is still there or not.
        Cancel(usize),
        Expire(Time, usize),
        /// Sleeps until the next expiry, as a driver does.
        Drive(usize),
    }

    #[derive(Clone, Copy, Debug)]
    enum Time {
        /// From the latest time on.
        After(u64),
        Before(u64),
        Absolute(u64),
    }

    impl Time {
        fn from(self, latest: u64) -> u64 {
            match self {
                Self::After(ms) => latest.saturating_add(ms),
                Self::Before(ms) => latest.saturating_sub(ms),
                Self::Absolute(at) => at,
            }
        }
    }

    fn time() -> impl Strategy<Value = Time> {
        prop_oneof![
            8 => (0..150_u64).prop_map(Time::After),
            4 => (0..20_000_u64).prop_map(Time::After),
            // Every size, and thereby every level, as likely.
            4 => (any::<u64>(), 0..64_u32).prop_map(|(bits, size)| Time::After(bits >> size)),
            2 => (0..5_000_u64).prop_map(Time::Before),
            1 => (any::<u64>(), 0..64_u32).prop_map(|(bits, size)| Time::Absolute(bits >> size)),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => time().prop_map(Step::Insert),
            5 => (0..200_usize).prop_map(Step::Cancel),
            4 => (0..300_u64, 0..8_usize).prop_map(|(ms, max)| Step::Expire(Time::After(ms), max)),
            1 => (time(), 0..50_usize).prop_map(|(time, max)| Step::Expire(time, max)),
            4 => (1..5_usize).prop_map(Step::Drive),
            // The rare end of all times.
            1 => prop_oneof![
                9 => Just(Step::Insert(Time::Absolute(u64::MAX))),
                1 => Just(Step::Expire(Time::Absolute(u64::MAX), 3)),
            ],
        ]
    }

    /// The wheel beside its model: a sorted map, by time and the order of arrival.
    struct Pair {
        wheel: Wheel<usize>,
        model: BTreeMap<(u64, usize), ()>,
        made: Vec<(Entry, u64)>,
        latest: u64,
    }

    impl Pair {
        fn insert(&mut self, at: u64) {
            let value = self.made.len();
            let at_earliest = at.max(self.wheel.now);
            self.made.push((self.wheel.insert(at, value), at_earliest));
            self.model.insert((at_earliest, value), ());
        }

        fn cancel(&mut self, nth: usize) {
            if let Some(&(entry, at)) = self.made.get(nth) {
                let expected = self.model.remove(&(at, nth)).map(|()| nth);
                assert_eq!(self.wheel.time_of(entry), expected.map(|_| at));
                assert_eq!(self.wheel.cancel(entry), expected);
                assert_eq!(self.wheel.cancel(entry), None);
            }
        }

        fn expire(&mut self, now: u64, max: usize) -> usize {
            let mut out = Vec::new();
            let passed = self.wheel.now;
            self.wheel.expire(now, max, |_, value| out.push(value));
            let now = now.max(passed);
            self.latest = self.latest.max(now);
            if out.len() < max {
                assert_eq!(self.wheel.now, now);
            }
            let due: Vec<_> = self
                .model
                .keys()
                .take_while(|(at, _)| *at <= now)
                .take(max)
                .copied()
                .collect();
            assert_eq!(out, due.iter().map(|&(_, value)| value).collect::<Vec<_>>());
            for key in due {
                self.model.remove(&key);
            }
            out.len()
        }

        /// Sleeps until something expires.
        fn drive(&mut self, max: usize) {
            for _ in 0..=LEVELS {
                let Some(next) = self.wheel.next_expiry() else {
                    return;
                };
                if self.expire(next.max(self.latest), max) > 0 {
                    return;
                }
            }
            panic!("nothing expired, though the wheel was asked once for each level");
        }

        fn check(&self) {
            assert!(self.wheel.now <= self.latest);
            let next = self.wheel.next_expiry();
            match self.model.first_key_value() {
                None => assert_eq!(next, None),
                Some((&(at, _), ())) => {
                    let next = next.unwrap();
                    assert!(next <= at, "{next} is later than {at}");
                    if at / SLOTS as u64 == self.wheel.now / SLOTS as u64 {
                        assert_eq!(next, at);
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn behaves_like_a_sorted_map(start in prop_oneof![Just(0), 0..1_u64 << 40], steps in vec(step(), 1..200)) {
            let mut pair = Pair {
                wheel: Wheel::new(),
                model: BTreeMap::new(),
                made: Vec::new(),
                latest: 0,
            };
            pair.expire(start, 1);
            for step in steps {
                match step {
                    Step::Insert(time) => pair.insert(time.from(pair.latest)),
                    Step::Cancel(nth) => pair.cancel(nth),
                    Step::Expire(time, max) => {
                        pair.expire(time.from(pair.latest), max);
                    }
                    Step::Drive(max) => pair.drive(max),
                }
                pair.check();
            }
            pair.expire(u64::MAX, usize::MAX);
            pair.check();
            prop_assert!(pair.model.is_empty());
        }
    }

    #[test]
    fn a_stale_entry_does_not_cancel_what_came_after_it_in_the_same_place() {
        let mut wheel = Wheel::new();
        let first = wheel.insert(5, "first");
        wheel.expire(5, 1, |expired, _| assert_eq!(expired, first));
        let second = wheel.insert(9, "second");
        assert_eq!(first.index, second.index);
        assert_eq!(wheel.cancel(first), None);
        assert_eq!(wheel.cancel(second), Some("second"));
    }

    #[test]
    fn places_are_used_again() {
        let mut wheel = Wheel::new();
        for round in 0..1_000 {
            for ms in 0..10 {
                wheel.insert(round * 10 + ms, ());
            }
            wheel.expire(round * 10 + 9, usize::MAX, |_, ()| {});
        }
        assert_eq!(wheel.nodes.len(), 10);
    }

    #[test]
    fn an_entry_costs_24_bytes_beside_its_value() {
        assert_eq!(
            size_of::<Node<crate::backend::Wake>>(),
            size_of::<crate::backend::Wake>() + 24
        );
    }
}
