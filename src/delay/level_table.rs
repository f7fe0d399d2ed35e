//! Describes the fixed delays that a broker offers.

#[cfg(feature = "rocketmq")]
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;

/// RocketMQ's own table: the default of the broker setting `messageDelayLevel`, the same in 4.9.8 and 5.3.3
/// (`MessageStoreConfig.java`).
pub const ROCKETMQ_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// The units of a delay in seconds, the largest first.
pub(super) const UNITS: [(u64, char); 4] = [(86_400, 'd'), (3_600, 'h'), (60, 'm'), (1, 's')];

/// The fixed delays that a broker offers, numbered from 1 in the order of its setting `messageDelayLevel`.
///
/// Any number of levels in any order. Parsed from the broker's own syntax: whole numbers with a unit (`s`, `m`, `h` or
/// `d`), separated by spaces. A broker does not start with other white space than single spaces between its levels;
/// here tabs, line breaks and several spaces are allowed, because they do not change the numbers. A level of zero,
/// which a broker would take, is refused: through it a wake-up would never come nearer to its time.
#[derive(Clone, PartialEq, Eq)]
pub struct LevelTable {
    /// In the broker's order.
    delays: Arc<[Duration]>,
    /// Ascending, with the number that the broker knows it by; of equal delays, the first.
    ascending: Arc<[Level]>,
}

/// One fixed delay of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The number that the broker knows it by, from 1.
    pub number: usize,
    /// The delay.
    pub delay: Duration,
}

impl LevelTable {
    /// Iterates over every level, in the broker's order.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = Level> + '_ {
        self.delays.iter().enumerate().map(|(at, &delay)| Level {
            number: at + 1,
            delay,
        })
    }

    /// Finds the level of exactly this delay.
    pub fn level_of(&self, delay: Duration) -> Option<Level> {
        self.largest_within(delay).filter(|level| level.delay == delay)
    }

    /// Finds the largest level of at most `limit`.
    pub fn largest_within(&self, limit: Duration) -> Option<Level> {
        let above = self.ascending.partition_point(|level| level.delay <= limit);
        self.ascending[..above].last().copied()
    }

    pub(super) fn shortest(&self) -> Level {
        // A table has at least one.
        self.ascending[0]
    }

    fn numbered(delays: Arc<[Duration]>) -> Self {
        let mut ascending: Vec<Level> = delays
            .iter()
            .enumerate()
            .map(|(at, &delay)| Level {
                number: at + 1,
                delay,
            })
            .collect();
        // Stable, so that of equal delays the first stays and the others go.
        ascending.sort_by_key(|level| level.delay);
        ascending.dedup_by_key(|level| level.delay);
        Self {
            delays,
            ascending: ascending.into(),
        }
    }
}

#[cfg(feature = "rocketmq")]
impl LevelTable {
    /// Makes a table of these delays: at least one, each of at least a second.
    pub(crate) fn of(delays: Vec<Duration>) -> Self {
        Self::numbered(delays.into())
    }

    /// Combines tables: the same table if all are equal; otherwise each delay once, by length.
    pub(crate) fn of_all<'a>(mut tables: impl Iterator<Item = &'a Self> + Clone) -> Option<Self> {
        let first = tables.next()?;
        if tables.clone().all(|table| table == first) {
            return Some(first.clone());
        }
        let levels = tables.chain([first]).flat_map(Self::levels);
        let delays: BTreeSet<_> = levels.map(|level| level.delay).collect();
        Some(Self::of(delays.into_iter().collect()))
    }

    /// Says whether both have the same delays, under whatever numbers.
    pub(crate) fn same_delays(&self, other: &Self) -> bool {
        let delays = |table: &Self| {
            table
                .ascending
                .iter()
                .map(|level| level.delay)
                .collect::<Vec<_>>()
        };
        delays(self) == delays(other)
    }
}

impl Default for LevelTable {
    /// Parses [`ROCKETMQ_LEVELS`].
    fn default() -> Self {
        ROCKETMQ_LEVELS.parse().expect("the constant is a level table")
    }
}

impl FromStr for LevelTable {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let delays = text
            .split_ascii_whitespace()
            .map(parse_level)
            .collect::<Result<Arc<[_]>, _>>()?;
        if delays.is_empty() {
            return Err(invalid_level(text));
        }
        Ok(Self::numbered(delays))
    }
}

fn parse_level(text: &str) -> Result<Duration, Error> {
    UNITS
        .into_iter()
        .find_map(|(size, unit)| Some((size, text.strip_suffix(unit)?)))
        // `u64::from_str` would take a leading plus.
        .filter(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|(size, digits)| digits.parse::<u64>().ok()?.checked_mul(size))
        // The broker adds the delay, in ms, to a time in a signed 64-bit number.
        .filter(|seconds| (1..=MAX_LEVEL_SECONDS).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| invalid_level(text))
}

/// About 10,000 years: beyond every due time, far below an overflow of the broker's signed 64-bit ms.
const MAX_LEVEL_SECONDS: u64 = 10_000 * 366 * 86_400;

fn invalid_level(text: &str) -> Error {
    Error::invalid(
        "level table",
        text,
        "allowed are whole numbers from 1 with a unit s, m, h or d, up to 3660000d, separated by spaces, such as \"1s 5s 10s 30s 1m\"",
    )
}

impl fmt::Display for LevelTable {
    /// Prints the broker's syntax and order, each level as [`Level`] is printed: `60s` becomes `1m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in self.levels() {
            if level.number > 1 {
                f.write_str(" ")?;
            }
            write!(f, "{level}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LevelTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LevelTable({self})")
    }
}

impl fmt::Display for Level {
    /// Prints the delay in the largest unit that leaves a whole number: `90s`, `15m`, `2h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.delay.as_secs();
        let (size, unit) = UNITS
            .into_iter()
            .find(|&(size, _)| seconds.is_multiple_of(size))
            .unwrap_or((1, 's'));
        write!(f, "{}{unit}", seconds / size)
    }
}
