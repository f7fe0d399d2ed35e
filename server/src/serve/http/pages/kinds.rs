//! Which kinds there are, where their tasks go, and which of them wait.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use delayline::Kind;
use delayline::store::When;
use url::form_urlencoded;

use super::super::Shared;
use super::super::problem::Problem;
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::tasks::name;
use super::visitor::Visitor;
use super::words::{Moment, Said, now, said};
use crate::kinds::Found;

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
    next: Option<String>,
    is_first: bool,
}

#[derive(Debug)]
struct KindRow {
    kind: String,
    states: Vec<String>,
    /// Where its tasks go, if the configuration says so.
    delivered: Option<String>,
    paused: Option<Paused>,
}

#[derive(Debug)]
struct Paused {
    since: Moment,
    until: Option<Moment>,
    reason: String,
}

/// `GET /kinds`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let after = fields.one("after").map(Kind::from);
    after.as_ref().map_or(Ok(()), Kind::check)?;
    let mut found = crate::kinds::page(&app.scheduler, &*app.store, after.as_ref(), KINDS + 1).await?;
    let is_last = found.len() <= KINDS;
    found.truncate(KINDS);
    let now = now();
    let row = |(kind, Found { states, paused }): (Kind, Found)| KindRow {
        states: states.into_iter().map(name).collect(),
        delivered: app.delivered.get(&kind).cloned(),
        kind: kind.to_string(),
        paused: paused.map(|paused| Paused {
            since: Moment::of(paused.since, now),
            until: paused.until.map(|until| Moment::of(until, now)),
            reason: paused.reason,
        }),
    };
    let kinds: Vec<_> = found.into_iter().map(row).collect();
    let last = kinds.last().filter(|_| !is_last);
    page(&KindsPage {
        frame: Frame::new(&app, Tab::Kinds, Some(visitor)),
        said: fields.one("said").and_then(said),
        of: fields.one("of").unwrap_or_default().to_owned(),
        next: last.map(|last| search(&[("after", &last.kind)])),
        is_first: after.is_none(),
        kinds,
    })
}

fn search(pairs: &[(&str, &str)]) -> String {
    let mut search = form_urlencoded::Serializer::new(String::new());
    search.extend_pairs(pairs).finish()
}

fn kind(fields: &Fields) -> Kind {
    fields.one("kind").unwrap_or_default().into()
}

fn back(app: &Shared, kind: &Kind, said: &str) -> Response {
    let search = search(&[("said", said), ("of", kind.as_str())]);
    go_to(&format!("{}/kinds?{search}", app.base_path))
}

/// `POST /kinds/pause`
pub(super) async fn pause(
    State(app): State<Shared>,
    Extension(fields): Extension<Fields>,
) -> Result<Response, Problem> {
    let kind = kind(&fields);
    let until = fields.one("until").map(super::to::time).transpose()?;
    let until = until.map(|until| match until {
        When::At(time) => time,
        When::After(delay) => now().after(delay),
    });
    let reason = fields.one("reason").unwrap_or_default();
    app.scheduler.pause(kind.clone(), until, reason).await?;
    Ok(back(&app, &kind, "pause.done"))
}

/// `POST /kinds/resume`
pub(super) async fn resume(
    State(app): State<Shared>,
    Extension(fields): Extension<Fields>,
) -> Result<Response, Problem> {
    let kind = kind(&fields);
    let said = match app.scheduler.resume(kind.clone()).await? {
        true => "resume.done",
        false => "resume.not_found",
    };
    Ok(back(&app, &kind, said))
}
