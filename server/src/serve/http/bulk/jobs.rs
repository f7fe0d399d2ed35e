//! Changes in bulk that go on behind their callers, as far as this process knows of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use delayline::{Kind, Timestamp};
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::super::answer::{time, time_if_any};
use super::super::now;
use super::super::problem::Problem;
use super::super::texts;
use crate::bulk::Answers;

/// How many go on at once.
const RUNNING: usize = 4;
/// How many are known, those that have ended lately among them.
const KNOWN: usize = 100;

/// The changes that this process has begun, in their order. They end with it, and no other knows of them.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<VecDeque<Arc<Job>>>);

impl Jobs {
    /// Lets a change begin, unless too many go on.
    pub(super) fn begin(&self, verb: &'static str, kind: Kind, actor: String) -> Result<Arc<Job>, Problem> {
        let mut known = self.known();
        if known.iter().filter(|job| job.is_running()).count() >= RUNNING {
            let detail = format!(
                "{RUNNING} changes in bulk go on at this server, which is as many as may: nothing was changed; ask \
                 again when one of them has ended, see GET /v1/bulk"
            );
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        if known.len() == KNOWN
            && let Some(oldest) = known.iter().position(|job| !job.is_running())
        {
            known.remove(oldest);
        }
        let job = Arc::new(Job::new(verb, kind, actor));
        known.push_back(Arc::clone(&job));
        Ok(job)
    }

    /// The change of this id, if it is of a kind that its caller may know of.
    pub(super) fn find(&self, id: &str, known: impl Fn(&Kind) -> bool) -> Result<Arc<Job>, Problem> {
        let found = self.known().iter().find(|job| job.id == id).cloned();
        let found = found.filter(|job| known(&job.kind));
        found.ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_FOUND,
                "this server knows of no such change in bulk: another server may have begun it, or this one before it \
                 was started anew, with which it has ended; or it has ended long ago",
            )
        })
    }

    /// All of kinds that their caller may know of, the last one first.
    pub(in super::super) fn all(&self, known: impl Fn(&Kind) -> bool) -> Vec<JobView> {
        let jobs = self.known();
        let jobs = jobs.iter().rev().filter(|job| known(&job.kind));
        jobs.map(|job| job.view()).collect()
    }

    /// Waits until none goes on any more.
    pub(crate) async fn have_ended(&self) {
        let all: Vec<_> = self.known().iter().cloned().collect();
        for job in all {
            job.has_ended().await;
        }
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Arc<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change in bulk, and how far it has come.
#[derive(Debug)]
pub(in super::super) struct Job {
    pub(in super::super) id: String,
    verb: &'static str,
    kind: Kind,
    /// Who has begun it, as histories name it.
    actor: String,
    begun_at: Timestamp,
    is_to_stop: AtomicBool,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    state: JobState,
    seen: usize,
    answers: Answers,
    error: Option<String>,
    /// Who has asked it to stop.
    stopped_by: Option<String>,
    ended_at: Option<Timestamp>,
}

/// What has become of a change in bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = BulkState)]
pub(in super::super) enum JobState {
    /// It goes on.
    Running,
    /// All that matched were asked for.
    Done,
    /// Somebody has stopped it, or its server stops: some were not asked for.
    Stopped,
    /// By its error some were not asked for.
    Failed,
}

impl Job {
    fn new(verb: &'static str, kind: Kind, actor: String) -> Self {
        let progress = Progress {
            state: JobState::Running,
            seen: 0,
            answers: Answers::default(),
            error: None,
            stopped_by: None,
            ended_at: None,
        };
        Self {
            id: format!("{:016x}", fastrand::u64(..)),
            verb,
            kind,
            actor,
            begun_at: now(),
            is_to_stop: AtomicBool::new(false),
            progress: watch::Sender::new(progress),
        }
    }

    fn is_running(&self) -> bool {
        self.progress.borrow().state == JobState::Running
    }

    pub(super) fn is_to_stop(&self) -> bool {
        self.is_to_stop.load(Ordering::Relaxed)
    }

    /// Stops it on behalf of `actor`, and waits until what is under way has ended. Of several the first one counts.
    pub(super) async fn stop(&self, actor: String) {
        self.progress.send_if_modified(|progress| {
            let is_first = progress.state == JobState::Running && progress.stopped_by.is_none();
            if is_first {
                progress.stopped_by = Some(actor);
            }
            is_first
        });
        self.is_to_stop.store(true, Ordering::Relaxed);
        self.has_ended().await;
    }

    async fn has_ended(&self) {
        let ended = |progress: &Progress| progress.state != JobState::Running;
        // It is sent by what this holds.
        let _ = self.progress.subscribe().wait_for(ended).await;
    }

    /// More tasks were found to match.
    pub(super) fn seen(&self, more: usize) {
        self.progress.send_modify(|progress| progress.seen += more);
    }

    /// More tasks were asked for.
    pub(super) fn answered(&self, more: &Answers) {
        self.progress.send_modify(|progress| progress.answers.add(more));
    }

    pub(super) fn end(&self, came: Result<JobState, String>) {
        self.progress.send_modify(|progress| {
            let (state, error) = match came {
                Ok(state) => (state, None),
                Err(error) => (JobState::Failed, Some(error)),
            };
            (progress.state, progress.error) = (state, error);
            progress.ended_at = Some(now());
        });
        let Progress {
            state,
            seen,
            answers,
            error,
            stopped_by,
            ..
        } = &*self.progress.borrow();
        tracing::info!(
            id = self.id,
            verb = self.verb,
            kind = self.kind.as_str(),
            actor = self.actor,
            stopped_by,
            ?state,
            seen,
            changed = answers.done,
            error,
            "a change in bulk has ended"
        );
    }

    pub(super) fn view(&self) -> JobView {
        let progress = self.progress.borrow().clone();
        JobView {
            id: self.id.clone(),
            verb: self.verb,
            kind: self.kind.to_string(),
            actor: self.actor.clone(),
            stopped_by: progress.stopped_by,
            state: progress.state,
            seen: progress.seen,
            changed: progress.answers.done,
            answers: progress.answers,
            error: progress.error,
            begun_at: self.begun_at,
            ended_at: progress.ended_at,
        }
    }
}

/// A change in bulk that goes on behind its caller, or has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkJob)]
pub(in super::super) struct JobView {
    pub(in super::super) id: String,
    /// `cancel`, `run`, `redrive`, `dismiss`, `reschedule` or `shift`.
    pub(in super::super) verb: &'static str,
    /// That of its filter.
    pub(in super::super) kind: String,
    /// Who has begun it: `api:NAME` or `page:NAME`.
    pub(in super::super) actor: String,
    /// Who has stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) stopped_by: Option<String>,
    pub(in super::super) state: JobState,
    /// How many tasks were found to match so far.
    pub(in super::super) seen: usize,
    /// How many are changed so far.
    pub(in super::super) changed: usize,
    /// How many were answered how so far.
    pub(in super::super) answers: Answers,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) error: Option<String>,
    #[serde(serialize_with = "time")]
    #[schema(value_type = texts::Time)]
    pub(in super::super) begun_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time_if_any")]
    #[schema(value_type = Option<texts::Time>)]
    pub(in super::super) ended_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn begun(jobs: &Jobs) -> Arc<Job> {
        jobs.begin("cancel", "k".into(), "api:shop".to_owned()).unwrap()
    }

    #[test]
    fn few_go_on_at_once_and_many_are_known() {
        let jobs = Jobs::default();
        let first = begun(&jobs);
        let running: Vec<_> = (1..RUNNING).map(|_| begun(&jobs)).collect();
        let refused = jobs
            .begin("cancel", "k".into(), "api:shop".to_owned())
            .unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let last = running.last().unwrap();
        last.end(Ok(JobState::Done));
        for _ in 0..KNOWN {
            begun(&jobs).end(Err("no".to_owned()));
        }
        let known = jobs.all(|_| true);
        assert_eq!(known.len(), KNOWN);
        assert_eq!(known.last().map(|job| job.id.as_str()), Some(first.id.as_str()));
        assert!(
            jobs.find(&last.id, |_| true).is_err(),
            "the first of those that have ended"
        );
        assert!(jobs.find(&running[0].id, |_| true).is_ok(), "it goes on");
        assert_eq!(
            (known[0].state, known[0].error.as_deref()),
            (JobState::Failed, Some("no"))
        );
    }

    #[tokio::test]
    async fn who_stops_one_waits_for_its_end() {
        let jobs = Jobs::default();
        let job = begun(&jobs);
        let stopping = async { tokio::join!(job.stop("page:operator".to_owned()), jobs.have_ended()) };
        let mut stopping = std::pin::pin!(stopping);
        assert!(stopping.as_mut().now_or_never().is_none());
        assert!(job.is_to_stop());
        job.seen(3);
        job.answered(&Answers {
            done: 2,
            ..Answers::default()
        });
        assert!(stopping.as_mut().now_or_never().is_none());
        job.end(Ok(JobState::Stopped));
        stopping.await;
        let view = job.view();
        assert_eq!((view.state, view.seen, view.changed), (JobState::Stopped, 3, 2));
        assert_eq!(view.stopped_by.as_deref(), Some("page:operator"));
        assert!(view.ended_at.is_some());
    }
}
