//! Which kinds there are, where their tasks go, and which of them wait.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use delayline::Kind;
use delayline::store::When;
use url::form_urlencoded;

use super::super::Shared;
use super::super::problem::Problem;
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::spark::Sparks;
use super::visitor::Visitor;
use super::words::{Moment, Said, lasted, said};
use super::wrong::Wrong;
use crate::digits::grouped;
use crate::operations::{KindView, PausedView, state_name};
use crate::serve::config::Right;
use crate::serve::recent::{OfKind, Recent, Spread, Tally};
use crate::time::{Time, now};

/// How many kinds a page has.
const KINDS: usize = 100;

#[derive(Debug, Template)]
#[template(path = "kinds.html")]
struct KindsPage {
    frame: Frame,
    said: Option<Said>,
    /// The kind that it is said of.
    of: String,
    kinds: Vec<KindRow>,
    /// Since when it is told what came of tasks.
    since: Moment,
    next: Option<String>,
    is_first: bool,
    /// What was filled in for a pause, if something was wrong with it.
    wrong: Wrong,
    filled: Filled,
}

/// What a form of a pause was filled in with.
#[derive(Debug, Default)]
struct Filled {
    kind: String,
    reason: String,
    until: String,
}

#[derive(Debug)]
struct KindRow {
    kind: String,
    states: Vec<&'static str>,
    /// What came of its tasks within the last hour; none, if that is not told apart.
    recent: Option<Recently>,
    /// Where its tasks go, if the configuration says so.
    delivered: Option<String>,
    paused: Option<Paused>,
    /// Whether something was wrong with its pause.
    is_wrong: bool,
}

/// What this server did with the tasks of a kind.
#[derive(Debug)]
struct Recently {
    started_a_minute: String,
    sparks: Sparks,
    failed: u64,
    /// How late they were started, and how long each took, if there were any.
    late: Option<Shares>,
    took: Option<Shares>,
}

/// Within what half of them were, and 99 of 100.
#[derive(Debug)]
struct Shares {
    p50: String,
    p99: String,
}

impl Recently {
    fn of(recent: &Recent, kind: &str) -> Option<Self> {
        let OfKind { tally, course } = recent.of_kind(kind)?;
        let Tally { late, took, failed } = tally;
        Some(Self {
            sparks: Sparks::of(&course),
            started_a_minute: rate(recent.a_minute(late.count())),
            failed,
            late: Shares::of(&late),
            took: Shares::of(&took),
        })
    }

    fn has_failed(&self) -> bool {
        self.failed > 0
    }
}

impl Shares {
    fn of(spread: &Spread) -> Option<Self> {
        (spread.count() > 0).then(|| Self {
            p50: lasted(spread.within(0.5)),
            p99: lasted(spread.within(0.99)),
        })
    }
}

/// How often, as far as that matters.
fn rate(a_minute: f64) -> String {
    match a_minute {
        0.0 => "0".to_owned(),
        ..0.1 => "less than 0.1".to_owned(),
        ..10.0 => format!("{a_minute:.1}"),
        _ => grouped(a_minute.round()),
    }
}

#[derive(Debug)]
struct Paused {
    since: Moment,
    until: Option<Moment>,
    reason: String,
    /// Who has paused it.
    actor: Option<String>,
}

/// `GET /kinds`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    shown(&app, visitor, &fields, Wrong::default(), Filled::default()).await
}

async fn shown(
    app: &Shared,
    visitor: Visitor,
    fields: &Fields,
    wrong: Wrong,
    filled: Filled,
) -> Result<Response, Problem> {
    // Also where a form is shown once more.
    visitor.caller.need(Right::Read)?;
    let after = fields.one("after").map(Kind::from);
    let operations = visitor.caller.operations(app);
    let mut found = operations.kinds(after.as_ref(), KINDS + 1).await?;
    let is_last = found.len() <= KINDS;
    found.truncate(KINDS);
    let (now, current) = (now(), app.current());
    let row = |KindView { kind, states, paused }| KindRow {
        states: states.into_iter().map(state_name).collect(),
        recent: Recently::of(&app.recent, &kind),
        is_wrong: wrong.is_some() && kind == filled.kind,
        delivered: current.delivered.get(&Kind::from(kind.as_str())).cloned(),
        kind,
        paused: paused.map(|paused: PausedView| Paused {
            since: Moment::of(paused.since.0, now),
            until: paused.until.map(|Time(until)| Moment::of(until, now)),
            reason: paused.reason,
            actor: paused.actor,
        }),
    };
    let kinds: Vec<_> = found.into_iter().map(row).collect();
    if let Some(wrong) = wrong.of("until")
        && kinds.iter().all(|kind| !kind.is_wrong)
    {
        return Err(Problem::new(StatusCode::BAD_REQUEST, wrong));
    }
    let last = kinds.last().filter(|_| !is_last);
    page(&KindsPage {
        frame: Frame::new(app, Tab::Kinds, Some(visitor)),
        said: fields.one("said").and_then(said),
        of: fields.one("of").unwrap_or_default().to_owned(),
        next: last.map(|last| search(&[("after", &last.kind)])),
        is_first: after.is_none(),
        since: Moment::of(app.recent.since(now), now),
        kinds,
        wrong,
        filled,
    })
}

fn search(pairs: &[(&str, &str)]) -> String {
    let mut search = form_urlencoded::Serializer::new(String::new());
    search.extend_pairs(pairs).finish()
}

fn back(app: &Shared, kind: &Kind, said: &str) -> Response {
    let search = search(&[("said", said), ("of", kind.as_str())]);
    go_to(&format!("{}/kinds?{search}", app.base_path))
}

/// `POST /kinds/pause`
pub(super) async fn pause(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<Fields>,
) -> Result<Response, Problem> {
    let kind = Kind::from(fields.one("kind").unwrap_or_default());
    let until = match fields.one("until").map(super::to::time).transpose() {
        Ok(until) => until,
        Err(problem) => {
            let filled = |name| fields.one(name).unwrap_or_default().to_owned();
            let filled = Filled {
                kind: kind.to_string(),
                reason: filled("reason"),
                until: filled("until"),
            };
            let wrong = Wrong::at("until", &problem);
            let mut response = shown(&app, visitor, &fields, wrong, filled).await?;
            *response.status_mut() = problem.status();
            return Ok(response);
        }
    };
    let until = until.map(|until| match until {
        When::At(time) => time,
        When::After(delay) => now().after(delay),
    });
    let reason = fields.one("reason").unwrap_or_default();
    visitor
        .caller
        .operations(&app)
        .pause(&kind, until, reason)
        .await?;
    Ok(back(&app, &kind, "pause.done"))
}

/// `POST /kinds/resume`
pub(super) async fn resume(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<Fields>,
) -> Result<Response, Problem> {
    let kind = Kind::from(fields.one("kind").unwrap_or_default());
    let said = match visitor.caller.operations(&app).resume(&kind).await? {
        true => "resume.done",
        false => "resume.not_found",
    };
    Ok(back(&app, &kind, said))
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_as_fine_as_matters() {
        for (a_minute, text) in [
            (0.0, "0"),
            (0.02, "less than 0.1"),
            (0.25, "0.2"),
            (9.9, "9.9"),
            (10.4, "10"),
            (1_234.4, "1,234"),
        ] {
            assert_eq!(rate(a_minute), text);
        }
    }
}
