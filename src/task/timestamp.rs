//! Represents a moment in time, as rows have it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A moment in time: whole milliseconds since 1970-01-01T00:00:00Z.
///
/// Printed and parsed as RFC 3339, e.g. `2026-11-21T08:00:00Z`. A zone that is named as well (RFC 9557), as in
/// `2026-11-21T09:00:00+01:00[Europe/Berlin]`, has to be one that is known and has this offset at that time.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use delayline::Timestamp;
///
/// # fn main() -> Result<(), delayline::Error> {
/// let time: Timestamp = "2026-11-21T09:00:00+01:00".parse()?;
/// assert_eq!(time.to_string(), "2026-11-21T08:00:00Z");
/// assert_eq!(time.after(Duration::from_secs(60)).millis_since(time), 60_000);
///
/// let now = Timestamp::from(SystemTime::now());
/// assert!(now < Timestamp::MAX);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last moment a task can be due: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// The first moment that can be represented; no task is due before it.
    pub const MIN: Self = Self(i64::MIN);

    /// Makes the moment `millis` milliseconds after 1970-01-01T00:00:00Z.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the milliseconds from `earlier` to this moment; negative if this moment is before it.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `delay` later (whole milliseconds, the rest rounded up), at the latest [`Timestamp::MAX`].
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(millis(delay)).min(Self::MAX.0))
    }

    /// Returns the moment `millis` milliseconds later, or earlier if negative, at the latest [`Timestamp::MAX`].
    pub fn shifted(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis).min(Self::MAX.0))
    }
}

/// Rounds up to whole milliseconds, also before 1970.
fn round_up(nanos: i128) -> i64 {
    i64::try_from(nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) > 0))
        .unwrap_or(i64::MAX)
}

/// Converts `delay` to whole milliseconds, rounded up so that nothing becomes due early.
pub(crate) fn millis(delay: Duration) -> i64 {
    i64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Makes a duration of `millis` milliseconds; zero if negative.
pub(crate) fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(millis(after)),
            Err(before) => Self(-millis(before.duration())),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(time) = jiff::Timestamp::from_millisecond(self.0) {
            return write!(f, "{time}");
        }
        // Only for the first and the last day, which jiff's timestamps do not reach.
        match EPOCH.checked_add(SignedDuration::from_millis(self.0)) {
            Ok(time) => write!(f, "{time}Z"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|allowed| Error::invalid("time", text, allowed))
    }
}

/// 1970-01-01T00:00:00, without a zone.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// Parses a moment, or says what is allowed.
fn parse(text: &str) -> Result<Timestamp, &'static str> {
    const MOMENT: &str = "allowed is a moment with its offset, such as 2026-11-21T08:00:00Z";
    const ZONE: &str =
        "allowed is a zone that is known, with an offset that it has at that time, or an offset alone";
    // Jiff refuses brackets whose contents must be understood and are not.
    let pieces = Pieces::parse(text).map_err(|_| MOMENT)?;
    let (Some(time), Some(offset)) = (pieces.time(), pieces.to_numeric_offset()) else {
        return Err(MOMENT);
    };
    let local = pieces.date().to_datetime(time);
    let is_numeric = matches!(pieces.offset(), Some(PiecesOffset::Numeric(_)));
    if let Some(zone) = pieces.to_time_zone().map_err(|_| ZONE)? {
        let last = jiff::Timestamp::MAX;
        let at = offset.to_timestamp(local).unwrap_or(last);
        // Z names the moment and no offset.
        if is_numeric && zone.to_offset(at) != offset {
            return Err(ZONE);
        }
    }
    let since = local.duration_since(EPOCH).as_nanos() - i128::from(offset.seconds()) * 1_000_000_000;
    Ok(Timestamp(round_up(since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_printed_and_parsed_as_rfc_3339() {
        let time: Timestamp = "2026-11-21T09:00:00.250+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-11-21T08:00:00.25Z");
        let later: Timestamp = "2026-11-21T08:00:00.2500001Z".parse().unwrap();
        assert_eq!(later.millis_since(time), 1);
        let before: Timestamp = "1969-12-31T23:59:59.9995Z".parse().unwrap();
        assert_eq!(before.as_millis(), 0);
        assert!("tomorrow".parse::<Timestamp>().is_err());
    }

    #[test]
    fn a_zone_has_to_be_known_and_to_have_the_offset() {
        let eight = "2026-11-21T08:00:00Z".parse::<Timestamp>().unwrap();
        for text in [
            "2026-11-21T09:00:00+01:00[Europe/Berlin]",
            "2026-11-21T09:00:00+01:00[!Europe/Berlin]",
            "2026-11-21T08:00:00Z[Europe/Berlin]",
            "2026-11-21T09:00:00+01:00[+01:00]",
            "2026-11-21T08:00:00Z[UTC]",
            "2026-11-21T09:00:00+01:00[Europe/Berlin][u-ca=iso8601]",
            "2026-11-21T08:00:00Z[u-ca=hebrew]",
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap(), eight, "{text}");
        }
        for text in [
            "2027-03-28T02:30:00+05:00[Europe/Berlin]",
            // This time does not exist: clocks go from 2 to 3.
            "2027-03-28T02:30:00+01:00[Europe/Berlin]",
            "2026-11-21T09:00:00+02:00[Europe/Berlin]",
            "2026-11-21T09:00:00+01:00[+02:00]",
            "2026-11-21T09:00:00+01:00[Europe/Atlantis]",
            "2026-11-21T08:00:00Z[Europe/Atlantis]",
            "9999-12-31T23:59:59+05:00[Europe/Berlin]",
        ] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains("allowed is a zone that is known"), "{error}");
        }
        for text in [
            "2026-11-21T08:00:00Z[!u-ca=hebrew]",
            "2026-11-21T09:00:00+01:00[Europe/Berlin][!x-when=soon]",
            "2026-11-21T09:00:00[Europe/Berlin]",
            "2026-11-21[Europe/Berlin]",
            "2026-11-21T08:00:00Z[",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_moment_can_be_said() {
        let last: Timestamp = "9999-12-31T23:59:59Z".parse().unwrap();
        assert_eq!(last.to_string(), "9999-12-31T23:59:59Z");
        let last: Timestamp = "9999-12-31T23:59:59.999Z".parse().unwrap();
        assert_eq!(last, Timestamp::MAX);
        assert_eq!(last.to_string().parse::<Timestamp>().unwrap(), last);
        let east: Timestamp = "9999-12-31T23:59:59.999+02:00".parse().unwrap();
        assert_eq!(Timestamp::MAX.millis_since(east), 7_200_000);
        let beyond: Timestamp = "9999-12-31T23:59:59-01:00".parse().unwrap();
        assert!(beyond > Timestamp::MAX, "refused where it is a due time");
        assert_eq!(Timestamp::MIN.to_string(), format!("{} ms", i64::MIN));
    }

    #[test]
    fn a_part_of_a_millisecond_is_rounded_up() {
        let start = Timestamp::from_millis(10);
        assert_eq!(start.after(Duration::from_micros(1)).as_millis(), 11);
        assert_eq!(start.after(Duration::from_millis(1)).as_millis(), 11);
    }

    #[test]
    fn arithmetic_ends_at_the_year_9999() {
        assert_eq!(Timestamp::from_millis(0).after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.shifted(i64::MAX), Timestamp::MAX);
    }
}
