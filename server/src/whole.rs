//! Whole numbers, as arguments have them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Takes a whole number of a range.
pub(crate) fn whole<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync
where
    N: Copy + Display + FromStr + PartialOrd + Send + Sync,
{
    move |text| {
        digits(text)
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                format!(
                    "allowed are whole numbers from {} to {}",
                    range.start(),
                    range.end()
                )
            })
    }
}

/// A number of nothing but digits: `FromStr` would take a leading plus.
pub(crate) fn digits<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}
