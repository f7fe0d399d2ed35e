//! Computes when customers are reminded: in their own time zone, and not at night.

use jiff::civil::{Time, time};
use jiff::{Span, ToSpan, Zoned};

use crate::Error;

/// No reminder is sent from the one hour to the other.
const NIGHT: (i8, i8) = (22, 8);
/// In the evening before, when the morning would be too late.
const EVENING: Time = time(21, 30, 0, 0);

pub(crate) fn is_night(at: &Zoned) -> bool {
    let (begins, ends) = NIGHT;
    at.hour() >= begins || at.hour() < ends
}

/// When a customer is reminded so long before an appointment. At night it waits for the morning, or where that leaves less
/// than an hour, it comes on the evening before.
pub(crate) fn reminder(appointment: &Zoned, before: Span) -> Result<Zoned, Error> {
    // A day before is at the same time of the day, also where the clocks change in between.
    let at = appointment.checked_sub(before)?;
    if !is_night(&at) {
        return Ok(at);
    }
    let (begins, ends) = NIGHT;
    let evening = match at.hour() >= begins {
        true => at.date(),
        false => at.date().yesterday()?,
    };
    let morning = evening
        .tomorrow()?
        .at(ends, 0, 0, 0)
        .to_zoned(at.time_zone().clone())?;
    let waits = morning.checked_add(1.hour())? <= *appointment;
    match waits {
        true => Ok(morning),
        false => Ok(evening.to_datetime(EVENING).to_zoned(at.time_zone().clone())?),
    }
}
