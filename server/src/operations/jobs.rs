//! Changes of many tasks that go on behind their callers, as far as this process knows of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delayline::Kind;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::ToSchema;

use super::{Answers, Follower, Operations, Refusal, Work, name};
use crate::time::{self, Time};

/// How many go on at once.
const RUNNING: usize = 4;
/// How many are known, those that have ended lately among them.
const KNOWN: usize = 100;

/// The changes that this process has begun, in their order. They end with it, and no other process knows of them.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<VecDeque<Arc<Job>>>);

impl Jobs {
    /// Lets a change go on by itself, unless too many do. It is followed as `follow` says.
    pub(crate) fn start<F: Follower + Send + 'static>(
        &self,
        work: Work,
        follow: impl FnOnce(Arc<Job>) -> F,
    ) -> Result<Arc<Job>, Refusal> {
        let job = self.begin(name(work.action()), work.kind(), work.actor())?;
        let follower = follow(Arc::clone(&job));
        let ended = Arc::clone(&job);
        tokio::spawn(async move {
            // By itself, so that a defect in it is its end and nothing more.
            let came = tokio::spawn(async move { work.run(&follower).await }).await;
            ended.end(match came {
                Ok(Ok(true)) => ended.view().answers.none_failed().map(|()| JobState::Done),
                Ok(Ok(false)) => Ok(JobState::Stopped),
                Ok(Err(refusal)) => Err(refusal.for_caller()),
                Err(_) => Err("the server could not do it; its log says why".to_owned()),
            });
        });
        Ok(job)
    }

    fn begin(&self, verb: &'static str, kind: &str, actor: &str) -> Result<Arc<Job>, Refusal> {
        let mut known = self.known();
        if known.iter().filter(|job| job.is_running()).count() >= RUNNING {
            return Err(Refusal::TooManyJobs(RUNNING));
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

    /// Finds a change by its id, if it is of a kind that its caller may see.
    pub(crate) fn find(&self, id: &str, caller: &Operations) -> Result<Arc<Job>, Refusal> {
        let found = self.known().iter().find(|job| job.id == id).cloned();
        found.filter(|job| job.is_seen_by(caller)).ok_or(Refusal::NoJob)
    }

    /// Lists the changes of kinds that their caller may see, the last one first.
    pub(crate) fn list(&self, caller: &Operations) -> Vec<JobView> {
        let jobs = self.known();
        let jobs = jobs.iter().rev().filter(|job| job.is_seen_by(caller));
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

/// A change of many tasks, and how far it has come.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    view: watch::Sender<JobView>,
}

/// A change in bulk that goes on behind its caller, or has ended.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = BulkJob)]
pub(crate) struct JobView {
    pub(crate) id: String,
    /// `cancel`, `run`, `redrive`, `dismiss`, `reschedule` or `shift`.
    pub(crate) verb: &'static str,
    /// That of its filter.
    pub(crate) kind: String,
    /// Who has begun it: `api:NAME` or `page:NAME`.
    pub(crate) actor: String,
    /// Who has stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_by: Option<String>,
    pub(crate) state: JobState,
    /// How many tasks were found to match so far.
    pub(crate) seen: usize,
    /// How many are changed so far.
    pub(crate) changed: usize,
    /// How many were answered how so far.
    pub(crate) answers: Answers,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) begun_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<Time>,
}

/// What has become of a change in bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = BulkState)]
pub(crate) enum JobState {
    /// It goes on.
    Running,
    /// All that matched were asked for.
    Done,
    /// It was stopped, or its server stops: some were not asked for.
    Stopped,
    /// By its error some were not asked for.
    Failed,
}

/// The time by this machine's clock, for people.
fn now() -> Time {
    Time(time::now())
}

impl Job {
    fn new(verb: &'static str, kind: &str, actor: &str) -> Self {
        let id = format!("{:016x}", fastrand::u64(..));
        let view = JobView {
            id: id.clone(),
            verb,
            kind: kind.to_owned(),
            actor: actor.to_owned(),
            stopped_by: None,
            state: JobState::Running,
            seen: 0,
            changed: 0,
            answers: Answers::default(),
            error: None,
            begun_at: now(),
            ended_at: None,
        };
        let view = watch::Sender::new(view);
        Self { id, view }
    }

    fn is_seen_by(&self, caller: &Operations) -> bool {
        caller.reaches(&Kind::from(self.view.borrow().kind.as_str()))
    }

    fn is_running(&self) -> bool {
        self.view.borrow().state == JobState::Running
    }

    /// Waits until it is stopped.
    pub(crate) async fn is_to_stop(&self) {
        self.until(|view| view.stopped_by.is_some()).await;
    }

    /// Stops it on behalf of `actor`, and waits until what is under way has ended. Of several the first one counts.
    pub(crate) async fn stop(&self, actor: &str) {
        self.view.send_if_modified(|view| {
            let is_first = view.state == JobState::Running && view.stopped_by.is_none();
            if is_first {
                view.stopped_by = Some(actor.to_owned());
            }
            is_first
        });
        self.has_ended().await;
    }

    async fn has_ended(&self) {
        self.until(|view| view.state != JobState::Running).await;
    }

    async fn until(&self, is_so: impl FnMut(&JobView) -> bool) {
        // It is sent by what this holds.
        let _ = self.view.subscribe().wait_for(is_so).await;
    }

    /// Records that more tasks were found to match, and what came of more changes.
    pub(crate) fn record(&self, found: usize, answers: &Answers) {
        self.view.send_modify(|view| {
            view.seen += found;
            view.answers.add(answers);
            view.changed = view.answers.done;
        });
    }

    fn end(&self, came: Result<JobState, String>) {
        self.view.send_modify(|view| {
            (view.state, view.error) = match came {
                Ok(state) => (state, None),
                Err(error) => (JobState::Failed, Some(error)),
            };
            view.ended_at = Some(now());
        });
        let view = self.view.borrow();
        tracing::info!(
            id = view.id,
            verb = view.verb,
            kind = view.kind,
            actor = view.actor,
            stopped_by = view.stopped_by,
            state = ?view.state,
            seen = view.seen,
            changed = view.changed,
            error = view.error,
            "a change in bulk has ended"
        );
    }

    pub(crate) fn view(&self) -> JobView {
        self.view.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use delayline::Scheduler;
    use delayline::store::MemoryStore;
    use futures_util::FutureExt as _;

    use super::*;

    fn begun(jobs: &Jobs) -> Arc<Job> {
        jobs.begin("cancel", "k", "api:shop").unwrap()
    }

    fn caller() -> Operations {
        let store = Arc::new(MemoryStore::new());
        let scheduler = Scheduler::builder(store.clone()).build().unwrap();
        Operations::new(&scheduler, store, "cli".to_owned())
    }

    #[tokio::test]
    async fn few_go_on_at_once_and_many_are_known() {
        let jobs = Jobs::default();
        let first = begun(&jobs);
        let running: Vec<_> = (1..RUNNING).map(|_| begun(&jobs)).collect();
        let refused = jobs.begin("cancel", "k", "api:shop").unwrap_err();
        assert!(matches!(refused, Refusal::TooManyJobs(RUNNING)));
        let last = running.last().unwrap();
        last.end(Ok(JobState::Done));
        for _ in 0..KNOWN {
            begun(&jobs).end(Err("no".to_owned()));
        }
        let caller = caller();
        let known = jobs.list(&caller);
        assert_eq!(known.len(), KNOWN);
        assert_eq!(known.last().map(|job| job.id.as_str()), Some(first.id.as_str()));
        assert!(
            jobs.find(&last.id, &caller).is_err(),
            "the first of those that have ended"
        );
        assert!(jobs.find(&running[0].id, &caller).is_ok(), "it goes on");
        assert_eq!(
            (known[0].state, known[0].error.as_deref()),
            (JobState::Failed, Some("no"))
        );
    }

    #[tokio::test]
    async fn a_stop_waits_for_the_end_of_the_job() {
        let jobs = Jobs::default();
        let job = begun(&jobs);
        let stopping = async { tokio::join!(job.stop("page:operator"), jobs.have_ended()) };
        let mut stopping = std::pin::pin!(stopping);
        assert!(stopping.as_mut().now_or_never().is_none());
        assert!(job.is_to_stop().now_or_never().is_some());
        let two = Answers {
            done: 2,
            ..Answers::default()
        };
        job.record(3, &two);
        assert!(stopping.as_mut().now_or_never().is_none());
        job.end(Ok(JobState::Stopped));
        stopping.await;
        let view = job.view();
        assert_eq!((view.state, view.seen, view.changed), (JobState::Stopped, 3, 2));
        assert_eq!(view.stopped_by.as_deref(), Some("page:operator"));
        assert!(view.ended_at.is_some());
    }
}
