//! What can be measured.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

/// What is measured; the names are those of the command line and of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Workload {
    /// Tasks are scheduled.
    W1,
    /// Many are due at one instant.
    W2,
    /// The same with ten times as many.
    W2L,
    /// One is due each millisecond.
    W3,
    /// How much memory Redis takes for tasks that wait.
    W4,
    /// What is asked of a server while nothing is due.
    W5,
    /// Tasks are cancelled and moved.
    W6,
    /// Timers within the process.
    W7,
    /// How late tasks are after chains of hops.
    C1,
    /// Tasks are scheduled until their wake-ups are on brokers.
    C2,
    /// Many come out of one level at once.
    C3,
}

/// How many handlers, and callers, there are at once.
pub(crate) const CALLERS: usize = 64;
/// How many go into one call.
pub(crate) const BATCH: usize = 500;
/// How many write batches at once, and take and finish at once where statements are bare.
pub(crate) const WRITERS: usize = 4;

/// What a figure is, and so which way it is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Tasks a second.
    Rate,
    /// How long all of them take.
    Time,
    /// How late each is.
    Lateness,
    /// Bytes for each.
    Bytes,
    /// Statements or commands a second.
    Asked,
}

/// What one would like to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aim {
    /// Of the ratio to the limit.
    AtLeast(f64),
    /// Of the ratio to the limit.
    AtMost(f64),
    /// Of what was measured itself.
    NoMoreThan(f64),
    /// Of how much later than the limit 99 of a hundred are at the most, in ms.
    #[cfg(feature = "rocketmq")]
    AtMostLaterBy(f64),
}

/// One of the things that a workload measures.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: Cow<'static, str>,
    pub(crate) unit: Unit,
    pub(crate) aim: Aim,
}

impl Workload {
    pub(crate) const ALL: [Self; 11] = [
        Self::W1,
        Self::W2,
        Self::W2L,
        Self::W3,
        Self::W4,
        Self::W5,
        Self::W6,
        Self::W7,
        Self::C1,
        Self::C2,
        Self::C3,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::W1 => "W1",
            Self::W2 => "W2",
            Self::W2L => "W2L",
            Self::W3 => "W3",
            Self::W4 => "W4",
            Self::W5 => "W5",
            Self::W6 => "W6",
            Self::W7 => "W7",
            Self::C1 => "C1",
            Self::C2 => "C2",
            Self::C3 => "C3",
        }
    }

    /// Whether it is measured on RocketMQ.
    pub(crate) fn is_of_brokers(self) -> bool {
        matches!(self, Self::C1 | Self::C2 | Self::C3)
    }

    /// How many tasks it takes, of which there may be no more than `most`.
    pub(crate) fn tasks(self, most: usize) -> usize {
        let usual = match self {
            Self::W1 | Self::W5 | Self::W6 => 100_000,
            Self::W2 | Self::W3 | Self::C3 => 20_000,
            Self::W2L => 200_000,
            // As many as there is time for.
            Self::W4 | Self::W7 | Self::C2 => 1_000_000,
            Self::C1 => 5_000,
        };
        usual.min(most)
    }

    /// What is measured, in the order in which it is. On brokers that depends on their levels.
    pub(crate) fn figures(self, is_redis: bool) -> Vec<Figure> {
        let figure = |what: &'static str, unit, aim| Figure {
            what: what.into(),
            unit,
            aim,
        };
        let by = |redis, sql| if is_redis { redis } else { sql };
        match self {
            Self::W1 => vec![
                figure("by 64 callers", Unit::Rate, Aim::AtLeast(by(0.6, 4.0))),
                figure("in batches of 500", Unit::Rate, Aim::AtLeast(by(0.6, 0.8))),
            ],
            Self::W2 => vec![figure(
                "due at once, until done",
                Unit::Time,
                Aim::AtMost(by(2.5, 1.5)),
            )],
            Self::W2L => vec![figure(
                "due at once, beside as many as in W2",
                Unit::Rate,
                Aim::AtLeast(1.0),
            )],
            Self::W3 => vec![figure("one due each ms, late", Unit::Lateness, Aim::AtMost(2.5))],
            Self::W4 => vec![figure("bytes of memory each", Unit::Bytes, Aim::AtMost(1.3))],
            Self::W5 => vec![figure(
                "none due, asked meanwhile",
                Unit::Asked,
                Aim::NoMoreThan(by(1.0, 2.0)),
            )],
            Self::W6 => [
                "cancelled by 64 callers",
                "moved by 64 callers",
                "cancelled in batches of 500",
                "moved in batches of 500",
            ]
            .map(|what| figure(what, Unit::Rate, Aim::AtLeast(0.6)))
            .into(),
            Self::W7 => ["inserted", "cancelled", "expired"]
                .map(|what| figure(what, Unit::Rate, Aim::AtLeast(0.5)))
                .into_iter()
                .chain([figure("bytes of memory each", Unit::Bytes, Aim::AtMost(2.0))])
                .collect(),
            Self::C1 | Self::C2 | Self::C3 => Vec::new(),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
