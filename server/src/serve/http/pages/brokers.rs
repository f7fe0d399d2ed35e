//! What carries wake-ups, and how the tasks of this server came by theirs.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use delayline::Timestamp;
use delayline::backend::{Backend, Reach};

use super::super::Shared;
use super::super::problem::Problem;
use super::frame::{Frame, Tab, page};
use super::levels::Levels;
use super::visitor::Visitor;
use super::words::{Moment, lasted};
use crate::digits::grouped;
use crate::time::now;

#[derive(Debug, Template)]
#[template(path = "brokers.html")]
struct BrokersPage {
    frame: Frame,
    parts: Vec<PartRow>,
    levels: Levels,
    since: Moment,
    /// If its visitor may know of all kinds.
    of_all: Option<OfAll>,
}

/// What is told of the tasks and messages of all kinds together.
#[derive(Debug)]
struct OfAll {
    sent: Vec<Count>,
    came: Vec<Count>,
    /// How many messages to the gateway were not scheduled, and the last of them.
    unscheduled: String,
    last: Vec<UnscheduledRow>,
}

/// A message to the gateway that will not come out.
#[derive(Debug)]
struct UnscheduledRow {
    stored: Moment,
    topic: String,
    id: String,
    answer: &'static str,
    reason: String,
}

/// A server that this one cannot do without.
#[derive(Debug)]
struct PartRow {
    name: &'static str,
    answers: bool,
    /// Which delays it holds; of the store, that it has the tasks.
    holds: String,
    /// How many messages were none of ours, if there were any.
    foreign: Option<String>,
}

/// How often something has happened.
#[derive(Debug)]
struct Count {
    what: &'static str,
    count: String,
    /// Whether an operator should look why.
    is_bad: bool,
}

impl Count {
    fn is_zero(&self) -> bool {
        self.count == "0"
    }
}

/// `GET /brokers`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Problem> {
    let parts = app.parts().await;
    let backends = app.health.backends.iter();
    let held = backends.map(|backend| {
        (
            holds(&**backend),
            Some(backend.foreign()).filter(|foreign| *foreign > 0),
        )
    });
    let held = [("the tasks".to_owned(), None)].into_iter().chain(held);
    let now = now();
    let of_all = visitor.caller.reaches_all().then(|| OfAll::of(&app, now));
    page(&BrokersPage {
        frame: Frame::new(&app, Tab::Brokers, Some(visitor)),
        parts: parts
            .into_iter()
            .zip(held)
            .map(|(part, (holds, foreign))| PartRow {
                name: part.name,
                answers: part.ready,
                holds,
                foreign: foreign.map(grouped),
            })
            .collect(),
        levels: Levels::of(app.recent.levels()),
        since: Moment::of(app.started_at, now),
        of_all,
    })
}

impl OfAll {
    fn of(app: &Shared, now: Timestamp) -> Self {
        let stats = app.scheduler.stats();
        let unscheduled = app.unscheduled.kept();
        let last = unscheduled.last.into_iter().map(|message| UnscheduledRow {
            stored: Moment::of(message.stored_at, now),
            topic: message.topic,
            id: message.id,
            answer: message.answer,
            reason: message.reason,
        });
        let count = |what, count, is_bad| Count {
            what,
            count: grouped(count),
            is_bad: is_bad && count > 0,
        };
        Self {
            unscheduled: grouped(unscheduled.count),
            last: last.collect(),
            sent: vec![
                count("through the broker", stats.sent_by_carrier, false),
                count(
                    "precise: through Redis or a look ahead in the store",
                    stats.sent_precise,
                    false,
                ),
                count("of these, as the broker did not take them", stats.rerouted, true),
                count(
                    "by nothing: the sweep finds their tasks",
                    stats.left_to_sweep,
                    true,
                ),
            ],
            came: vec![
                count("started at their wake-up", stats.claimed_on_arrival, false),
                count(
                    "started when a worker had room again",
                    stats.claimed_when_ready,
                    false,
                ),
                count(
                    "found by the sweep, as their wake-up was missed",
                    stats.claimed_by_sweep,
                    true,
                ),
                count("hops of chains", stats.hops, false),
                count(
                    "wake-ups of tasks that were changed meanwhile",
                    stats.stale,
                    false,
                ),
            ],
        }
    }
}

fn holds(backend: &dyn Backend) -> String {
    match backend.delays().reach {
        Reach::Any { max } => {
            format!("wake-ups, for any time up to {}", lasted(max))
        }
        Reach::Levels(levels) => format!("wake-ups, in levels of {levels}"),
    }
}
