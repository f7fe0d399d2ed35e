//! What a broker tells of itself.

use std::collections::BTreeMap;
use std::str::FromStr;

use cheetah_string::CheetahString;

use super::failure::transient;
use super::version::Version;
use crate::{Error, LevelTable};

/// A broker's settings, or its figures, by their names there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(BTreeMap<String, String>);

impl Told {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim())
    }

    /// What can be read as what it should be.
    pub(crate) fn read<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Of settings: the delays of the levels.
    pub(crate) fn levels(&self) -> Result<LevelTable, Error> {
        self.get("messageDelayLevel")
            .ok_or_else(|| transient("the broker's settings have no messageDelayLevel"))?
            .parse()
    }

    /// Of figures: the broker's version.
    pub(crate) fn version(&self) -> Option<Version> {
        self.read("brokerVersionDesc")
    }
}

impl FromIterator<(CheetahString, CheetahString)> for Told {
    fn from_iter<I: IntoIterator<Item = (CheetahString, CheetahString)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(pairs.map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Told {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.map(|(name, value)| (name.into(), value.into())).into())
    }
}
