//! Reads when a message is due, from its properties.

use std::time::Duration;

use delayline::rocketmq::Received;
use delayline::{Shift, Timestamp};

use crate::span::Span;

/// The longest that a message may wait: a later time is treated as a mistake, and never as "at once".
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// How long ago a time in ms may be: one in seconds would be in 1970.
const LONGEST_AGO: Duration = Duration::from_secs(86_400);

const NO_TIME: &str =
    "DELAYLINE_AFTER is missing: allowed is one of DELAYLINE_AFTER, DELAYLINE_AT and __STARTDELIVERTIME";

/// Reads a time from a property's value.
type ReadTime = fn(&str, from: Timestamp) -> Option<Timestamp>;

/// The properties with times, and what is allowed in each.
const TIMES: [(&str, ReadTime, &str); 6] = [
    (
        "DELAYLINE_AFTER",
        after,
        "a duration such as 15m or 1h30m, or whole ms",
    ),
    (
        "DELAYLINE_AT",
        |text, _| text.parse().ok(),
        "a time in RFC 3339, such as 2026-12-24T18:00:00Z",
    ),
    // For Alibaba's and Tencent's clouds. Apache's brokers treat it as any other property.
    ("__STARTDELIVERTIME", moment, "a time in ms since 1970"),
    ("TIMER_DELIVER_MS", moment, "a time in ms since 1970"),
    (
        "TIMER_DELAY_MS",
        |text, from| Some(from.after(Duration::from_millis(text.parse().ok()?))),
        "whole ms",
    ),
    (
        "TIMER_DELAY_SEC",
        |text, from| Some(from.after(Duration::from_secs(text.parse().ok()?))),
        "whole seconds",
    ),
];

fn moment(text: &str, _: Timestamp) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_millis)
}

fn after(text: &str, from: Timestamp) -> Option<Timestamp> {
    delay(text).map(|delay| from.after(delay))
}

fn delay(text: &str) -> Option<Duration> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok().map(Duration::from_millis),
        false => text.parse().ok().map(|Span(delay)| delay),
    }
}

/// Returns when the message is due, if delays count from this time.
pub(super) fn due(message: &Received, from: Timestamp) -> Result<Timestamp, String> {
    said(message, from)?.ok_or_else(|| NO_TIME.to_owned())
}

/// Does the same, for messages that may have been held back. If a message has no time, and its broker has held it back
/// in a level of its own (`setDelayTimeLevel`), its time has come.
///
/// A message that is given back to a broker comes back through a level, too, and then it is not known whether it was
/// sent so.
pub(super) fn due_if_held(message: &Received, from: Timestamp) -> Result<Timestamp, String> {
    let was_held = message.properties.contains_key("DELAY");
    let due = said(message, from)?.or(was_held.then_some(from));
    due.ok_or_else(|| NO_TIME.to_owned())
}

/// Does the same, where none need be said.
pub(super) fn said(message: &Received, from: Timestamp) -> Result<Option<Timestamp>, String> {
    // A broker of 5.x holds timers itself, and leaves this when it has done so: their time has come.
    let timer_is_over = message.properties.contains_key("TIMER_OUT_MS");
    let mut due = timer_is_over.then_some((from, "TIMER_OUT_MS"));
    for (name, read, allowed) in TIMES {
        let Some(text) = message.properties.get(name) else {
            continue;
        };
        if timer_is_over && name.starts_with("TIMER_") {
            continue;
        }
        let time = read(text, from).ok_or_else(|| format!("{name} is {text:?}: allowed is {allowed}"))?;
        if time.millis_since(from) > i64::try_from(LONGEST.as_millis()).unwrap_or(i64::MAX) {
            return Err(too_far(name, text));
        }
        let is_in_ms = matches!(name, "__STARTDELIVERTIME" | "TIMER_DELIVER_MS");
        if is_in_ms && time.after(LONGEST_AGO) < from {
            return Err(format!(
                "{name} is {text:?}, more than a day past: allowed are ms since 1970; these may be seconds"
            ));
        }
        match due {
            Some((_, earlier)) if earlier != "TIMER_OUT_MS" => {
                return Err(format!(
                    "{name} is {text:?}, and there is {earlier}: allowed is one of both"
                ));
            }
            _ => due = Some((time, name)),
        }
    }
    Ok(due.map(|(time, _)| time))
}

fn too_far(name: &str, text: &str) -> String {
    format!("{name} is {text:?}: allowed are up to 366 days")
}

/// Returns by how much a shift moves.
pub(super) fn shift(message: &Received) -> Result<Shift, String> {
    let text = message
        .properties
        .get("DELAYLINE_AFTER")
        .map_or("", String::as_str);
    let earlier = text.strip_prefix('-');
    let by = delay(earlier.or_else(|| text.strip_prefix('+')).unwrap_or(text));
    let by = by.filter(|_| !text.is_empty()).ok_or_else(|| {
        format!("DELAYLINE_AFTER is {text:?}: allowed for a shift is a duration with a sign, such as +10m or -30s, or whole ms")
    })?;
    if by > LONGEST {
        return Err(too_far("DELAYLINE_AFTER", text));
    }
    Ok(earlier.map_or(Shift::Later(by), |_| Shift::Earlier(by)))
}

/// Refuses a time where it has no meaning.
pub(super) fn none(message: &Received) -> Result<(), String> {
    match TIMES
        .iter()
        .find(|(name, ..)| message.properties.contains_key(*name))
    {
        Some((name, ..)) if !name.starts_with("TIMER_") => Err(format!(
            "{name} is there: allowed is no time where DELAYLINE_ACTION is cancel or run"
        )),
        _ => Ok(()),
    }
}
