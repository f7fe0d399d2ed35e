//! Reads what a broker reports about itself.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use cheetah_string::CheetahString;

use super::failure::transient;
use super::version::Version;
use crate::Error;
use crate::delay::LevelTable;

/// The longest value that is accepted, in bytes: it may be a table of levels.
const LONGEST: usize = 4_096;

/// About 10,000 years, as of a level: sums of such delays are far from an overflow.
const LONGEST_TIMER: Duration = Duration::from_secs(10_000 * 366 * 86_400);

/// A broker's configuration, or its runtime statistics, by name. A value that is too long counts as missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct BrokerInfo(BTreeMap<String, String>);

impl BrokerInfo {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim())
    }

    /// Reads a value if it can be parsed.
    pub(crate) fn read<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Reads the delays of the levels from settings.
    pub(crate) fn levels(&self) -> Result<LevelTable, Error> {
        self.get("messageDelayLevel")
            .ok_or_else(|| transient("the broker's settings have no messageDelayLevel"))?
            .parse()
    }

    /// Reads the longest delay of a timer from settings, limited to what a task can have.
    pub(crate) fn longest_timer(&self) -> Option<Duration> {
        let longest = self.read("timerMaxDelaySec").map(Duration::from_secs)?;
        Some(longest.min(LONGEST_TIMER))
    }

    /// Reads the broker's version from statistics.
    pub(crate) fn version(&self) -> Option<Version> {
        self.read("brokerVersionDesc")
    }
}

impl FromIterator<(CheetahString, CheetahString)> for BrokerInfo {
    fn from_iter<I: IntoIterator<Item = (CheetahString, CheetahString)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        let pairs = pairs.filter(|(_, value)| value.len() <= LONGEST);
        Self(pairs.map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for BrokerInfo {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.map(|(name, value)| (name.into(), value.into())).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_anything_meant_counts_as_not_told() {
        let info = |levels: String| -> BrokerInfo {
            [("messageDelayLevel".into(), levels.into())]
                .into_iter()
                .collect()
        };
        assert_eq!(info("1s ".repeat(1_000)).levels().unwrap().levels().len(), 1_000);
        let refused = info("1s ".repeat(1_000_000)).levels().unwrap_err();
        assert!(
            refused.to_string().contains("have no messageDelayLevel"),
            "{refused}"
        );
    }

    #[test]
    fn the_longest_timer_is_no_longer_than_a_task_can_wait() {
        let longest = |seconds: &str| BrokerInfo::from([("timerMaxDelaySec", seconds)]).longest_timer();
        assert_eq!(longest("60"), Some(Duration::from_secs(60)));
        assert_eq!(longest("18446744073709551615"), Some(LONGEST_TIMER));
        assert_eq!(longest("-1"), None);
    }
}
