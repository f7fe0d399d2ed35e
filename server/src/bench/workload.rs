//! Lists the workloads.

use std::fmt;

/// What is measured; the names are those of the command line and of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "verbatim")]
pub(crate) enum Workload {
    /// Tasks are scheduled.
    W1,
    /// Many are due at one instant.
    W2,
    /// One is due each millisecond.
    W3,
    /// Tasks are cancelled and moved.
    W6,
    /// Tasks come through a chain of hops.
    C1,
}

/// The unit of a figure, and so which way it is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Tasks a second.
    Rate,
    /// How long all of them take.
    Time,
    /// How late each is.
    Lateness,
}

/// One of the things that a workload measures.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    /// The ratio to the limit to aim for.
    pub(crate) aim: f64,
}

impl Workload {
    pub(crate) const ON_STORES: [Self; 4] = [Self::W1, Self::W2, Self::W3, Self::W6];

    /// Returns how many tasks it takes.
    pub(crate) fn tasks(self) -> usize {
        match self {
            Self::W1 | Self::W6 => 100_000,
            Self::W2 | Self::W3 => 20_000,
            Self::C1 => 1_000,
        }
    }

    /// Returns its figures, in the order in which they are measured.
    pub(crate) fn figures(self, store: &str) -> Vec<Figure> {
        let figure = |what, unit, aim| Figure { what, unit, aim };
        let by = |redis, sql| if store == "redis" { redis } else { sql };
        match self {
            Self::W1 => vec![
                figure("by 64 callers", Unit::Rate, by(0.6, 4.0)),
                figure("in batches of 500", Unit::Rate, by(0.6, 0.8)),
            ],
            Self::W2 => vec![figure("due at once, until done", Unit::Time, by(2.5, 1.5))],
            Self::W3 => vec![figure("one due each ms, late", Unit::Lateness, 2.5)],
            Self::W6 => vec![
                figure("cancelled by 64 callers", Unit::Rate, 0.6),
                figure("moved by 64 callers", Unit::Rate, 0.6),
                figure("cancelled in batches of 500", Unit::Rate, 0.6),
                figure("moved in batches of 500", Unit::Rate, 0.6),
            ],
            Self::C1 => vec![figure("500 a second through a chain, late", Unit::Lateness, 2.5)],
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
