//! Numbers for people.

use std::fmt::Display;

/// A whole number with its thousands apart.
pub(crate) fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
