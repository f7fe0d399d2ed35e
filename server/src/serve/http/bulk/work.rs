//! What a change in bulk does that goes on behind its caller.

use std::sync::Arc;

use axum::http::StatusCode;
use delayline::Scheduler;
use delayline::store::Action;

use super::super::problem::Problem;
use super::super::{App, Shared};
use super::HELD;
use super::jobs::{Job, JobState};
use crate::bulk::{BATCH, Match, change, ends_the_state};
use crate::filter::{Bounds, Filter, PAGE, Position};

/// How many tasks are looked at in one step.
const STEP: usize = 1_000;
/// How many are found before they are changed, 24 bytes each.
const CHUNK: usize = 10_000;
/// The same of tasks that would match again once they are moved: then these are all.
const MOST: usize = 1_000_000;

/// A change of which a part is found.
#[derive(Debug)]
pub(super) struct Work {
    /// For whoever asked for it.
    pub(super) scheduler: Scheduler,
    pub(super) filter: Filter,
    pub(super) action: Action,
    /// What is to be changed.
    pub(super) found: Vec<Match>,
    /// After which it goes on.
    pub(super) after: Position,
}

impl Work {
    /// Goes on with it until its end, or until it or the server is to stop.
    pub(super) fn start(self, app: Shared, job: Arc<Job>) {
        job.seen(self.found.len());
        tokio::spawn(async move {
            let inside = Arc::clone(&job);
            // By itself, so that a defect in it is its end and nothing more.
            let came = tokio::spawn(async move { self.run(&app, &inside).await }).await;
            job.end(match came {
                Ok(came) => came.map_err(|problem| problem.detail().to_owned()),
                Err(_) => Err("the server could not do it; its log says why".to_owned()),
            });
        });
    }

    async fn run(self, app: &App, job: &Job) -> Result<JobState, Problem> {
        let Self {
            scheduler,
            filter,
            action,
            mut found,
            after,
        } = self;
        let may_match_again = !ends_the_state(action);
        let most = if may_match_again { MOST } else { CHUNK };
        let mut after = Some(after);
        loop {
            while after.is_some() && found.len() < most {
                let Some(_room) = next_step(app, job).await else {
                    return Ok(JobState::Stopped);
                };
                let step = Bounds {
                    tasks: STEP,
                    looks: STEP,
                    bytes: usize::MAX,
                    read: PAGE,
                };
                let (more, next): (Vec<Match>, _) = filter.page(&app.scheduler, after, step).await?;
                job.seen(more.len());
                found.extend(more);
                after = next;
            }
            if may_match_again && after.is_some() {
                return Err(too_many());
            }
            for batch in found.chunks(BATCH) {
                let Some(_room) = next_step(app, job).await else {
                    return Ok(JobState::Stopped);
                };
                job.answered(&change(&scheduler, batch, action, |_| ()).await?);
            }
            if after.is_none() {
                return Ok(JobState::Done);
            }
            found.clear();
        }
    }
}

/// Waits for room for the tasks of the next step; none if there is to be no other.
async fn next_step(app: &App, job: &Job) -> Option<impl Drop + use<>> {
    let is_to_stop = || job.is_to_stop() || *app.stopping.borrow();
    if is_to_stop() {
        return None;
    }
    let room = app.room_for_many.wait(HELD).await;
    room.filter(|_| !is_to_stop())
}

fn too_many() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        format!(
            "more than {MOST} tasks match, and what is moved would match again: nothing was changed; allowed is a \
             filter by which they all fit, such as a narrower due_before"
        ),
    )
}
