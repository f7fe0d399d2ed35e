//! Represents versions of brokers.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The version of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
    /// The third.
    pub patch: u16,
}

impl FromStr for Version {
    type Err = Error;

    /// Parses the form of brokers: `V5_3_3`, also with a mark such as `_SNAPSHOT` behind.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut numbers = text
            .strip_prefix('V')
            .into_iter()
            .flat_map(|rest| rest.split('_'));
        let mut next = || numbers.next().and_then(|number| number.parse().ok());
        match (next(), next(), next()) {
            (Some(major), Some(minor), Some(patch)) => Ok(Self { major, minor, patch }),
            _ => Err(Error::invalid(
                "brokerVersionDesc",
                text,
                "allowed is V, and three numbers separated by _",
            )),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        let ordered = [
            "V4_9_7",
            "V5_0_0",
            "V5_3_2",
            "V5_3_3",
            "V5_3_10_SNAPSHOT",
            "V10_0_0",
        ];
        assert!(ordered.map(version).is_sorted());
        for text in [
            "",
            "V",
            "5_3_3",
            "V5_3",
            "V5.3.3",
            "V5_x_3",
            "V5_3_99999",
            "V-1_0_0",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}
