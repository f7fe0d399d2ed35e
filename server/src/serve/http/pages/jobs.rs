//! Changes in bulk that go on behind their callers.

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;

use super::super::Shared;
use super::super::problem::Problem;
use super::bulk::{labelled, to_job};
use super::frame::{Frame, Tab, page};
use super::visitor::Visitor;
use super::words::Moment;
use crate::digits::grouped;
use crate::operations::JobView;
use crate::time::{Time, now};

/// A change in bulk that goes on, or has ended.
#[derive(Debug)]
struct JobRow {
    id: String,
    verb: &'static str,
    kind: String,
    state: String,
    goes_on: bool,
    seen: String,
    lines: Vec<(&'static str, String)>,
    error: Option<String>,
    /// The caller that has begun it, and the one that has stopped it.
    actor: String,
    stopped_by: Option<String>,
    begun: Moment,
    ended: Option<Moment>,
}

impl From<JobView> for JobRow {
    fn from(job: JobView) -> Self {
        let now = now();
        let state = format!("{:?}", job.state).to_lowercase();
        Self {
            goes_on: job.ended_at.is_none(),
            state,
            seen: grouped(job.seen),
            lines: labelled(job.verb, &job.answers),
            id: job.id,
            verb: job.verb,
            kind: job.kind,
            error: job.error,
            actor: job.actor,
            stopped_by: job.stopped_by,
            begun: Moment::of(job.begun_at.0, now),
            ended: job.ended_at.map(|Time(ended)| Moment::of(ended, now)),
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "bulk.html")]
struct JobPage {
    frame: Frame,
    job: JobRow,
}

/// `GET /bulk/{id}`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = app.jobs.find(&id, &visitor.caller.operations(&app))?;
    page(&JobPage {
        frame: Frame::new(&app, Tab::Bulk, Some(visitor)),
        job: job.view().into(),
    })
}

/// `POST /bulk/{id}/stop`
pub(super) async fn stop(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let operations = visitor.caller.operations(&app);
    app.jobs.find(&id, &operations)?.stop(operations.actor()).await;
    Ok(to_job(&app, &id))
}

#[derive(Debug, Template)]
#[template(path = "bulk_list.html")]
struct ListPage {
    frame: Frame,
    jobs: Vec<JobRow>,
}

/// `GET /bulk`
pub(super) async fn list(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Problem> {
    let jobs = app.jobs.list(&visitor.caller.operations(&app));
    page(&ListPage {
        frame: Frame::new(&app, Tab::Bulk, Some(visitor)),
        jobs: jobs.into_iter().map(JobRow::from).collect(),
    })
}
