//! Whether anything is late, and what is coming.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use delayline::Kind;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::super::Shared;
use super::super::problem::Problem;
use super::frame::{Frame, Tab, page};
use super::late::{Failing, Lateness};
use super::levels::Levels;
use super::spark::Sparks;
use super::visitor::Visitor;
use super::words::{COUNTED, Count, Moment, lasted};
use crate::operations::{KindView, LEAN};
use crate::serve::recent::Recent;
use crate::time::{now, span};

/// Of how many kinds tasks are counted.
const KINDS: usize = 50;
/// How many tasks are counted of all kinds together in a state: more would take longer than a page may.
const IN_ALL: usize = 100_000;
/// How many kinds are asked for at once.
const AT_ONCE: usize = 4;
/// Within which spans tasks are counted that are due: those that are due now, those of the forecast, and all.
const SPANS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(3_600),
    Duration::from_secs(86_400),
    Duration::MAX,
];
/// The spans of the forecast, and as what the list of tasks has each.
const FORECAST: [(&str, &str); 4] = [
    ("1 minute", "1m"),
    ("5 minutes", "5m"),
    ("1 hour", "1h"),
    ("1 day", "24h"),
];

/// The tasks that are looked at of each kind that is asked for.
pub(super) fn held(_: &Request) -> usize {
    AT_ONCE * Lateness::LOOKED_AT * LEAN
}

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    late: Late,
    forecast: Vec<Bar>,
    levels: Levels,
    kinds: Vec<KindRow>,
    are_more_kinds: bool,
    /// Of all kinds together, if its visitor may know of all.
    sparks: Option<Sparks>,
    running: Count,
    dead: Count,
    started: Vec<Started>,
    since: Moment,
    woken: String,
    unwell: Vec<(&'static str, Moment)>,
}

/// By what tasks were started, each with its share of them, the largest first.
fn woken(counts: &BTreeMap<String, u64>) -> String {
    let all: u64 = counts.values().sum();
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(**count));
    let share = |(by, count): (&String, &u64)| {
        let by = match by.as_str() {
            "carrier" => "wake-ups through the broker",
            "precise" => "precise wake-ups",
            "room" => "room that a worker had again",
            "sweep" => "the sweep, as their wake-ups were missed",
            "claim" => "claims",
            other => other,
        };
        match count * 100 / all {
            0 => format!("{by} (less than 1 %)"),
            percent => format!("{by} ({percent} %)"),
        }
    };
    counts.into_iter().map(share).collect::<Vec<_>>().join(", ")
}

/// How many tasks are due within a span.
#[derive(Debug)]
struct Bar {
    within: &'static str,
    due: &'static str,
    count: Count,
    percent: usize,
}

/// A figure about how late tasks were started.
#[derive(Debug)]
struct Started {
    name: &'static str,
    late: String,
}

/// What there is of a kind.
#[derive(Debug)]
struct KindRow {
    pub(super) kind: String,
    /// Why its tasks wait, if they do.
    pub(super) paused: Option<String>,
    /// Due by now, and not started.
    pub(super) due: Count,
    pub(super) lateness: Lateness,
    /// How it went within the last hour, if that is told apart.
    sparks: Option<Sparks>,
    forecast: [Count; FORECAST.len()],
    scheduled: Count,
    running: Count,
    done: Count,
    dead: Count,
    cancelled: Count,
}

impl KindRow {
    /// Tasks are counted up to `most`.
    async fn of(app: &Shared, found: KindView, most: usize) -> Result<Self, Problem> {
        let kind = Kind::from(found.kind.as_str());
        let recent = app.recent.of_kind(&found.kind);
        let mut row = Self {
            sparks: recent.map(|recent| Sparks::of(&recent.course)),
            kind: found.kind,
            paused: found.paused.map(|paused| paused.reason),
            due: Count::default(),
            lateness: Lateness::default(),
            forecast: Default::default(),
            scheduled: Count::default(),
            running: Count::default(),
            done: Count::default(),
            dead: Count::default(),
            cancelled: Count::default(),
        };
        for state in found.states {
            let spans = match state {
                delayline::State::Scheduled => &SPANS[..],
                _ => &SPANS[SPANS.len() - 1..],
            };
            let counted = app.store.due_within(&kind, state, spans, most).await?;
            let count = |tasks| Count::bounded(tasks, most);
            let counts: Vec<_> = counted.found.into_iter().map(count).collect();
            let all = counts.last().copied().unwrap_or_default();
            match state {
                delayline::State::Scheduled => {
                    row.scheduled = all;
                    row.due = counts[0];
                    row.forecast.copy_from_slice(&counts[1..=FORECAST.len()]);
                    row.lateness.look(app, &kind, state, counted.now).await?;
                }
                delayline::State::Running => {
                    row.running = all;
                    row.lateness.look(app, &kind, state, counted.now).await?;
                }
                delayline::State::Done => row.done = all,
                delayline::State::Dead => row.dead = all,
                delayline::State::Cancelled => row.cancelled = all,
            }
        }
        Ok(row)
    }

    pub(super) fn is_late(&self) -> bool {
        self.paused.is_none() && self.lateness.is_late()
    }

    pub(super) fn late(&self) -> String {
        span(self.lateness.oldest())
    }

    /// What keeps failing, if it is late by that.
    pub(super) fn failing(&self) -> Option<&Failing> {
        let failing = self.lateness.failing.as_ref();
        failing.filter(|failing| self.paused.is_none() && failing.is_late())
    }
}

/// What is late, in a sentence: how much, and the kind of which the oldest is.
#[derive(Debug)]
struct Late {
    text: String,
    /// None: nothing is.
    kind: Option<String>,
    is_failing: bool,
}

impl Late {
    fn of(kinds: &[KindRow]) -> Self {
        let late = || kinds.iter().filter(|kind| kind.is_late());
        let Some(oldest) = late().max_by_key(|kind| kind.lateness.oldest()) else {
            return Self {
                text: "Nothing is late.".to_owned(),
                kind: None,
                is_failing: false,
            };
        };
        let mut count = Count::default();
        for kind in late() {
            count.add(kind.due);
            if let Some(failing) = kind.failing() {
                count.add(failing.away);
            }
        }
        Self {
            text: format!("{} late, the oldest by {}: ", count.are(), oldest.late()),
            kind: Some(oldest.kind.clone()),
            is_failing: oldest.failing().is_some(),
        }
    }
}

fn forecast(kinds: &[KindRow]) -> Vec<Bar> {
    let mut counts = [Count::default(); FORECAST.len()];
    for kind in kinds {
        for (count, more) in counts.iter_mut().zip(kind.forecast) {
            count.add(more);
        }
    }
    let most = counts.iter().map(|count| count.tasks).max().unwrap_or(0).max(1);
    let bar = |((within, due), count): (_, Count)| Bar {
        within,
        due,
        count,
        percent: (count.tasks * 100).div_ceil(most),
    };
    FORECAST.into_iter().zip(counts).map(bar).collect()
}

fn sum(kinds: &[KindRow], count: impl Fn(&KindRow) -> Count) -> Count {
    let mut sum = Count::default();
    for kind in kinds {
        sum.add(count(kind));
    }
    sum
}

/// `GET /`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Problem> {
    let caller = visitor.caller.clone();
    let mut found = caller.operations(&app).kinds(None, KINDS + 1).await?;
    let are_more_kinds = found.len() > KINDS;
    found.truncate(KINDS);
    let most = (IN_ALL / found.len().max(1)).min(COUNTED);
    let counting = found.into_iter().map(|found| KindRow::of(&app, found, most));
    let counting = stream::iter(counting).buffered(AT_ONCE).try_collect();
    let (kinds, parts) = tokio::join!(counting, app.parts());
    let kinds: Vec<KindRow> = kinds?;
    // What is told of all kinds together is not for a token of some.
    let of_all = caller.reaches_all().then_some(&app.recent);
    let late = of_all.map(Recent::late).filter(|late| late.count() > 0);
    let started = [
        ("Half of them within", 0.5),
        ("99 of 100 within", 0.99),
        ("The latest after", 1.0),
    ];
    let started = late.iter().flat_map(|late| {
        started.map(|(name, share)| Started {
            name,
            late: lasted(late.within(share)),
        })
    });
    let now = now();
    page(&OverviewPage {
        frame: Frame::new(&app, Tab::Overview, Some(visitor)),
        late: Late::of(&kinds),
        forecast: forecast(&kinds),
        levels: Levels::of(app.recent.levels()),
        are_more_kinds,
        sparks: of_all.map(|recent| Sparks::of(&recent.course())),
        running: sum(&kinds, |kind| kind.running),
        dead: sum(&kinds, |kind| kind.dead),
        started: started.collect(),
        since: Moment::of(app.recent.since(now), now),
        woken: woken(&of_all.map(Recent::woken).unwrap_or_default()),
        unwell: parts
            .iter()
            .filter_map(|part| Some((part.name, Moment::of(part.silent_since?, now))))
            .collect(),
        kinds,
    })
}
