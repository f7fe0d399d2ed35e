//! Routes a delay through a level table: pure functions, no I/O, no clock.

mod level_table;
pub(crate) mod reach;

use std::fmt;
use std::time::Duration;

use self::level_table::UNITS;
pub use self::level_table::{Level, LevelTable, ROCKETMQ_LEVELS};
use self::reach::{Delays, Reach};
use crate::defaults;

/// Settings by which [`route`] trades broker cost for precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Routing {
    /// A task that is due sooner than this goes to the precise backend. Default 1 s.
    pub handoff: Duration,
    /// A task that is due later than this goes to the precise backend. Default 24 h.
    ///
    /// It bounds how many hops a task may cost, so it does not limit what one timer holds.
    pub horizon: Duration,
    /// By how much a level may overshoot the due time, so that one late hop does not force many short
    /// ones. Zero: never, and every chain ends in the precise backend. Default 200 ms. Timers do not use it.
    pub tolerance: Duration,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            handoff: defaults::HANDOFF,
            horizon: defaults::HORIZON,
            tolerance: defaults::TOLERANCE,
        }
    }
}

impl Routing {
    /// Sends a task that is due sooner than this to the precise backend.
    #[must_use]
    pub fn handoff(mut self, handoff: Duration) -> Self {
        self.handoff = handoff;
        self
    }

    /// Sends a task that is due later than this to the precise backend.
    #[must_use]
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// Sets by how much a level may overshoot the due time.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }
}

/// The next step of a wake-up. A caller that routes by itself has to know all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The task is due.
    Run,
    /// To the precise backend, for all of the remaining time.
    Precise,
    /// One hop through the carrier, after which it is routed again.
    Hop(Hop),
}

/// What the carrier does for a wake-up in one hop. A caller that routes by itself has to know both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Holds it for the delay of this level.
    Level(Level),
    /// Holds it for this long, as a carrier that holds any delay does.
    Timer(Duration),
}

impl Hop {
    /// Returns for how long the wake-up is held.
    pub fn delay(&self) -> Duration {
        match *self {
            Self::Level(level) => level.delay,
            Self::Timer(delay) => delay,
        }
    }
}

/// Returns the next step of a wake-up whose task is due in `remaining` (zero: now, or overdue).
///
/// `delays` are the carrier's; none, if there is no such backend or it is unhealthy. This is computed again at every
/// arrival, and no plan is stored: so the lateness of earlier hops vanishes instead of adding up.
pub fn route(remaining: Duration, routing: &Routing, delays: Option<&Delays>) -> Route {
    if remaining.is_zero() {
        return Route::Run;
    }
    let hop = delays
        .filter(|_| remaining >= routing.handoff)
        .and_then(|delays| match &delays.reach {
            Reach::Levels(table) => level(remaining, routing, table, delays.usual_lateness).map(Hop::Level),
            Reach::Any { max } => timer(remaining, routing, *max, delays.usual_lateness).map(Hop::Timer),
        });
    hop.map_or(Route::Precise, Route::Hop)
}

fn level(
    remaining: Duration,
    routing: &Routing,
    table: &LevelTable,
    usual_lateness: Duration,
) -> Option<Level> {
    if remaining > routing.horizon {
        return None;
    }
    let level = if routing.tolerance.is_zero() {
        // Less than the remaining time even when the hop is as late as usual, so that some time is left for the precise
        // backend.
        table.largest_within(remaining.checked_sub(usual_lateness)?)
    } else {
        table.largest_within(remaining.saturating_add(routing.tolerance))
    };
    // The tolerance spares hops; it must not stretch a delay that is shorter than every level.
    level.filter(|_| table.shortest().delay <= remaining)
}

/// Returns for how long a coarse timer, as late as `usual_lateness`, holds a task that is due in `remaining`.
///
/// Leaves at least the handoff to the precise backend, even if the timer is as late as usual. A delay that is shorter than
/// the usual lateness takes no timer.
fn timer(
    remaining: Duration,
    routing: &Routing,
    max: Duration,
    usual_lateness: Duration,
) -> Option<Duration> {
    let left = routing.handoff.saturating_add(usual_lateness);
    let wanted = remaining.checked_sub(left)?;
    if wanted > max && remaining > routing.horizon {
        return None;
    }
    Some(wanted.min(max)).filter(|&delay| delay >= usual_lateness && !delay.is_zero())
}

/// The hops of a task if every hop is punctual: informational, never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The hops, in order.
    pub hops: Vec<Hop>,
    /// The time left for the precise backend; zero if the last hop ends the chain.
    pub precise: Duration,
}

/// Plans the hops of a task due in `remaining`.
///
/// The plan has an entry for each hop, so its size is bounded by the horizon and the backend's delays only: a year
/// through a table of `1s` alone takes 31 million.
pub fn plan(remaining: Duration, routing: &Routing, delays: Option<&Delays>) -> Plan {
    let mut hops = Vec::new();
    let mut remaining = remaining;
    loop {
        match route(remaining, routing, delays) {
            Route::Run => break,
            Route::Precise => {
                return Plan {
                    hops,
                    precise: remaining,
                };
            }
            Route::Hop(hop) => {
                remaining = remaining.saturating_sub(hop.delay());
                hops.push(hop);
            }
        }
    }
    Plan {
        hops,
        precise: Duration::ZERO,
    }
}

impl fmt::Display for Hop {
    /// Prints a level as [`Level`] is printed, a timer as [`Spelled`]: `2h`, `14m 57s 800ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => level.fmt(f),
            Self::Timer(delay) => Spelled(*delay).fmt(f),
        }
    }
}

impl fmt::Display for Plan {
    /// Prints `1h + 3m + 10s + 10s`, with ` + 250ms precise` where some time is left; `now` if there is nothing to wait
    /// for. More than four equal hops in a row are counted: `12 x 2h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.hops.chunk_by(|one, next| one.delay() == next.delay()) {
            if run.len() > 4 {
                write!(f, "{separator}{} x {}", run.len(), run[0])?;
                separator = " + ";
                continue;
            }
            for hop in run {
                write!(f, "{separator}{hop}")?;
                separator = " + ";
            }
        }
        if !self.precise.is_zero() {
            return write!(f, "{separator}{} precise", Spelled(self.precise));
        }
        if self.hops.is_empty() {
            f.write_str("now")?;
        }
        Ok(())
    }
}

/// A duration as people write it: `1h 30m`, `29s 950ms`, `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelled(pub Duration);

impl fmt::Display for Spelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seconds = self.0.as_secs();
        let part = Duration::from_nanos(self.0.subsec_nanos().into());
        let mut separator = "";
        for (size, unit) in UNITS {
            if seconds >= size {
                write!(f, "{separator}{}{unit}", seconds / size)?;
                separator = " ";
            }
            seconds %= size;
        }
        if !part.is_zero() {
            return write!(f, "{separator}{part:?}");
        }
        if self.0.is_zero() {
            f.write_str("0s")?;
        }
        Ok(())
    }
}
