//! `delayline plan`: what routing will do with a delay.

use std::time::Duration;

use delayline::backend::{Delays, Reach};
use delayline::delay::{self, Hop, LevelTable, ROCKETMQ_LEVELS, Route, Routing, Spelled, route};
use delayline::{Error, defaults};
use serde::Serialize;

use crate::Failure;
use crate::span::Span;

/// More hops than this are refused: they are not readable, and a long delay through short levels would fill the memory.
const MOST_HOPS: usize = 10_000;
/// More hops than this are worth a word.
const MANY_HOPS: usize = 100;

/// Show how a delay travels: through which levels or timers of the broker, and what is left for the precise backend.
///
/// Nothing is sent and nothing is stored; no server is needed.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// From now until the task is due, such as 250ms, 15m, "1h 30m" or 2d; 0s is due now
    #[arg(value_name = "DELAY", allow_negative_numbers = true)]
    delay: Span,
    /// The levels of the broker: its setting messageDelayLevel, with or without that name
    #[arg(long, value_name = "TABLE", value_parser = levels, default_value = ROCKETMQ_LEVELS, allow_hyphen_values = true)]
    levels: LevelTable,
    /// Timer messages in place of levels, of up to this long: timerMaxDelaySec of a broker of version 5
    #[arg(
        long,
        value_name = "DURATION",
        conflicts_with = "levels",
        allow_hyphen_values = true
    )]
    timers: Option<Span>,
    /// What is due sooner goes to the precise backend
    #[arg(long, value_name = "DURATION", default_value_t = Span(defaults::HANDOFF), allow_hyphen_values = true)]
    handoff: Span,
    /// What is due later goes to the precise backend
    #[arg(long, value_name = "DURATION", default_value_t = Span(defaults::HORIZON), allow_hyphen_values = true)]
    horizon: Span,
    /// By how much a level may overshoot the due time; with 0s every delay ends in the precise backend
    #[arg(long, value_name = "DURATION", default_value_t = Span(defaults::TOLERANCE), allow_hyphen_values = true)]
    tolerance: Span,
    /// Print JSON, with every duration in milliseconds
    #[arg(long)]
    json: bool,
}

const SPACES: &str =
    "a broker does not start with anything but one space between two levels; allowed is that";

fn levels(text: &str) -> Result<LevelTable, String> {
    // As it stands in broker.conf.
    let setting = text.trim().strip_prefix("messageDelayLevel");
    let setting = setting.and_then(|rest| rest.trim_start().strip_prefix('='));
    let text = setting.unwrap_or(text).trim();
    if text.contains(|c: char| c.is_whitespace() && c != ' ') || text.contains("  ") {
        return Err(SPACES.to_owned());
    }
    text.parse().map_err(|error| match error {
        Error::Invalid { value, allowed, .. } if value != text => format!("{value:?} is no level; {allowed}"),
        Error::Invalid { allowed, .. } => allowed,
        other => other.to_string(),
    })
}

/// The plan as JSON.
#[derive(Serialize)]
struct Report {
    delay_ms: u128,
    /// The first step: `run`, `precise`, `levels` or `timers`.
    route: &'static str,
    hops: Vec<Held>,
    /// What is left for the precise backend.
    precise_ms: u128,
}

#[derive(Serialize)]
struct Held {
    /// The number by which the broker knows the level; not there for a timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<usize>,
    delay_ms: u128,
}

impl Plan {
    /// What to print.
    pub(crate) fn run(&self) -> Result<String, Failure> {
        let plan = self.plan()?;
        if self.json {
            return self.json(&plan);
        }
        Ok(self.text(&plan))
    }

    fn routing(&self) -> Routing {
        Routing::default()
            .handoff(self.handoff.0)
            .horizon(self.horizon.0)
            .tolerance(self.tolerance.0)
    }

    /// The broker's.
    fn delays(&self) -> Delays {
        match self.timers {
            Some(Span(max)) => Delays {
                reach: Reach::Any { max },
                usual_lateness: defaults::TIMERS_LATENESS,
            },
            None => Delays {
                reach: Reach::Levels(self.levels.clone()),
                usual_lateness: defaults::LEVELS_LATENESS,
            },
        }
    }

    fn plan(&self) -> Result<delay::Plan, Failure> {
        let (routing, delays) = (self.routing(), self.delays());
        // Walked before it is collected.
        let mut remaining = self.delay.0;
        for _ in 0..=MOST_HOPS {
            match route(remaining, &routing, Some(&delays)) {
                Route::Hop(hop) => remaining = remaining.saturating_sub(hop.delay()),
                Route::Run | Route::Precise => return Ok(delay::plan(self.delay.0, &routing, Some(&delays))),
            }
        }
        Err(Failure::Argument(format!(
            "DELAY is \"{}\": it takes more than {MOST_HOPS} hops; allowed are a shorter delay, a shorter --horizon, \
             longer --levels or longer --timers",
            self.delay
        )))
    }

    fn json(&self, plan: &delay::Plan) -> Result<String, Failure> {
        let report = Report {
            delay_ms: self.delay.0.as_millis(),
            route: first_step(plan),
            hops: plan
                .hops
                .iter()
                .map(|hop| Held {
                    level: match hop {
                        Hop::Level(level) => Some(level.number),
                        Hop::Timer(_) => None,
                    },
                    delay_ms: hop.delay().as_millis(),
                })
                .collect(),
            precise_ms: plan.precise.as_millis(),
        };
        let mut json = serde_json::to_string(&report).map_err(|error| Failure::Output(error.into()))?;
        json.push('\n');
        Ok(json)
    }

    fn text(&self, plan: &delay::Plan) -> String {
        let mut text = format!("delay    {}\nroute    {}", self.delay, first_step(plan));
        if plan.hops.is_empty() {
            text += &self.why_no_level();
        } else {
            text += &format!("\nplan     {plan}\nhops     {}", plan.hops.len());
        }
        text += &format!("\nprecise  {}", Spelled(plan.precise));
        let hops: Duration = plan.hops.iter().map(Hop::delay).sum();
        if let Some(late) = hops.checked_sub(self.delay.0).filter(|late| !late.is_zero()) {
            text += &format!(
                "; the last hop ends {} late, which the tolerance allows",
                Spelled(late)
            );
        }
        if plan.hops.len() > MANY_HOPS {
            text += &format!(
                "\nnote     {} hops are as many messages, and as many writes of the task's row: let the broker have longer \
                 levels, or leave longer delays to the precise backend by a shorter --horizon",
                plan.hops.len()
            );
        }
        if self.timers.is_some() && !plan.hops.is_empty() {
            text += &format!(
                "\nnote     planned with punctual timers: one may be {} late, at the cost of the precise rest",
                Span(defaults::TIMERS_LATENESS)
            );
        } else if plan.hops.len() > 1 {
            text += "\nnote     planned with punctual hops: ";
            text += &if self.tolerance.0.is_zero() {
                "late ones change which levels follow, and may add some".to_owned()
            } else {
                format!(
                    "once they are more than {} late in all, a tail of smaller levels is added",
                    self.tolerance
                )
            };
        }
        text + "\n"
    }

    /// Why the first step is none through a level.
    fn why_no_level(&self) -> String {
        let delay = self.delay.0;
        if delay.is_zero() {
            ": it is due now".into()
        } else if delay < self.handoff.0 {
            format!(": shorter than the handoff of {}", self.handoff)
        } else if self
            .timers
            .is_some_and(|Span(max)| delay <= self.horizon.0.max(max))
        {
            ": too short for a timer, which is late by up to its usual lateness".into()
        } else if delay > self.horizon.0 {
            format!(": longer than the horizon of {}", self.horizon)
        } else if self.levels.largest_within(delay).is_none() {
            ": shorter than every level".into()
        } else {
            ": without tolerance no level is short enough to leave time for its usual lateness".into()
        }
    }
}

fn first_step(plan: &delay::Plan) -> &'static str {
    match plan.hops.first() {
        Some(Hop::Level(_)) => "levels",
        Some(Hop::Timer(_)) => "timers",
        None if plan.precise.is_zero() => "run",
        None => "precise",
    }
}
