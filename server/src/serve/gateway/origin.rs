//! Identifies where a message came from, and which of two came first.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use delayline::rocketmq::Received;
use delayline::{TaskId, Timestamp};

use crate::serve::derived_id::derived_id;

/// The longest name of a message, or of a broker, that is kept as it is.
const LONGEST: usize = 100;
/// By how much the times of two messages may contradict their places, as the clock of their broker was set back. No broker
/// that has lost its log, or the end of it, takes messages again so soon.
const SET_BACK: Duration = Duration::from_secs(5);

/// Derives the id of the task of a message, the same whenever it comes again, from the topic and the id that its
/// producer gave it.
pub(super) fn id_of(topic: &str, message: &str) -> TaskId {
    derived_id([topic.as_bytes(), message.as_bytes()], &[])
}

/// Which message it was, and when and where it was stored. A row keeps that of the message that made it as a header,
/// and that of each that changed it in its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    message: String,
    at: Timestamp,
    /// The place in the log of its broker, if that is known.
    place: Option<u64>,
    broker: String,
}

impl Origin {
    pub(super) fn of(message: &Received) -> Self {
        let has = |name: &str| message.properties.contains_key(name);
        let was_held = has("TIMER_OUT_MS") || has("DELAY");
        let is_given_back = has("RETRY_TOPIC");
        let is_plain = |text: &str| {
            text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
        };
        Self {
            message: match is_plain(&message.id) {
                true => message.id.clone(),
                false => id_of(&message.topic, &message.id).to_string(),
            },
            // A message that its broker held back was stored later than it was sent, and is in the log where it came out;
            // its producer's clock is as good as another broker's. Of one that was given back both are of the first time.
            at: match was_held && !is_given_back {
                true => message.stored_at.min(message.born_at),
                false => message.stored_at,
            },
            place: message.place.filter(|_| is_given_back || !was_held),
            broker: message
                .broker
                .chars()
                .map(|sign| if sign.is_control() { '_' } else { sign })
                .take(LONGEST)
                .collect(),
        }
    }

    /// Says whether both are of the same message, however often its producer or its broker sent it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.message == other.message
    }

    /// Returns the name of the message.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Says whether it was stored before the other: on the same broker by their places, if these are of one log, otherwise
    /// by the brokers' clocks.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let by_time = self.at < other.at;
        match (self.place, other.place) {
            (Some(place), Some(others)) if self.broker == other.broker => {
                let by_place = place < others;
                let apart = self.at.millis_since(other.at).unsigned_abs();
                match u128::from(apart) > SET_BACK.as_millis() {
                    true => by_time,
                    false => by_place,
                }
            }
            _ => by_time,
        }
    }
}

const MESSAGE: &str = "message ";

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MESSAGE}{}, {} ", self.message, self.at.as_millis())?;
        match self.place {
            Some(place) => write!(f, "{place} ")?,
            None => f.write_str("- ")?,
        }
        f.write_str(&self.broker)
    }
}

/// The header is no origin.
pub(super) struct NoOrigin;

impl FromStr for Origin {
    type Err = NoOrigin;

    fn from_str(text: &str) -> Result<Self, NoOrigin> {
        let read = || {
            let (message, rest) = text.strip_prefix(MESSAGE)?.split_once(", ")?;
            let mut parts = rest.splitn(3, ' ');
            Some(Self {
                message: message.to_owned(),
                at: Timestamp::from_millis(parts.next()?.parse().ok()?),
                place: match parts.next()? {
                    "-" => None,
                    place => Some(place.parse().ok()?),
                },
                broker: parts.next()?.to_owned(),
            })
        };
        read().ok_or(NoOrigin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(at: i64, place: Option<u64>, broker: &str) -> Origin {
        let mut message = Received::new("in", "7F0001", Timestamp::from_millis(at), *b"x");
        (message.place, message.broker) = (place, broker.to_owned());
        Origin::of(&message)
    }

    #[test]
    fn messages_of_a_broker_are_in_the_order_of_its_log_and_others_by_their_times() {
        for (first, then, why) in [
            (
                origin(5, Some(1), "a"),
                origin(5, Some(2), "a"),
                "of one millisecond",
            ),
            (
                origin(9, Some(1), "a"),
                origin(5, Some(2), "a"),
                "the clock went back",
            ),
            (origin(5, Some(2), "a"), origin(9, Some(1), "b"), "another broker"),
            (
                origin(5, None, "a"),
                origin(9, Some(1), "a"),
                "its place is not known",
            ),
            (
                origin(5, Some(9_000), "a"),
                origin(5_006, Some(0), "a"),
                "the broker lost its log",
            ),
        ] {
            assert!(first.is_before(&then) && !then.is_before(&first), "{why}");
        }
        let (one, other) = (origin(5, Some(1), "a"), origin(5, Some(1), "b"));
        assert!(
            !one.is_before(&other) && !other.is_before(&one),
            "neither is known to be the first"
        );
    }

    #[test]
    fn what_was_held_back_is_as_old_as_when_it_was_sent() {
        let stored = |names: &[&str]| {
            let mut message = Received::new("in", "a", Timestamp::from_millis(90), *b"x");
            message.born_at = Timestamp::from_millis(20);
            message.place = Some(7);
            for name in names {
                message.properties.insert((*name).to_owned(), "1".to_owned());
            }
            let Origin { at, place, .. } = Origin::of(&message);
            (at.as_millis(), place)
        };
        assert_eq!(stored(&[]), (90, Some(7)));
        assert_eq!(stored(&["DELAY"]), (20, None), "held back by its broker");
        assert_eq!(stored(&["TIMER_OUT_MS"]), (20, None));
        // Its time and its place are those of the first time, whatever its producer's clock says.
        assert_eq!(stored(&["DELAY", "RETRY_TOPIC"]), (90, Some(7)));
    }

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let mut odd = Received::new("in", "a, b\u{1}", Timestamp::from_millis(-5), *b"x");
        odd.broker = "broker a\n".to_owned();
        for written in [
            origin(1_800_000_000_000, Some(12_345), "broker-a"),
            origin(0, None, ""),
            Origin::of(&odd),
        ] {
            let text = written.to_string();
            assert!(text.parse().is_ok_and(|read: Origin| read == written), "{text}");
        }
        for garbled in [
            "",
            "paid by phone",
            "message x",
            "message x, 1",
            "message x, 1 y z",
        ] {
            assert!(garbled.parse::<Origin>().is_err(), "{garbled}");
        }
    }
}
