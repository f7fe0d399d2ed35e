//! Changes of all tasks that match.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::store::Action;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::instrument::WithSubscriber as _;

use super::server::{Answered, Server};
use super::{Client, because, body_of};
use crate::Failure;
use crate::operations::{Answers, Changed, Filter, Follower, JobState, Refusal, name};
use crate::reason::Reason;
use crate::table::one_line;

/// How many a server counts at the most.
const COUNTED: usize = 10_000;
/// How often it is asked how far it has come.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// For how long one that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a server says of a change: what came of it, or that it goes on.
#[derive(Deserialize)]
#[serde(untagged)]
enum BulkReply {
    Continues(Job),
    Done {
        matched: usize,
        more: bool,
        answers: Option<Answers>,
    },
}

#[derive(Deserialize)]
struct Job {
    id: String,
    state: JobState,
    seen: usize,
    answers: Answers,
    error: Option<String>,
}

impl Client {
    /// Counts the tasks that an action would change, up to `limit`, and at a server up to 10,000; says whether there are more.
    pub(crate) async fn count(
        &self,
        filter: &Filter,
        action: Action,
        limit: usize,
    ) -> Result<(usize, bool), Failure> {
        match self {
            Self::Store(operations) => Ok(operations.count(filter, action, limit).await?),
            Self::Server(server) => {
                let mut body = body_of(action);
                body.insert("dry_run".to_owned(), true.into());
                body.insert("limit".to_owned(), limit.clamp(1, COUNTED).into());
                match server.bulk(filter, action, body).await? {
                    BulkReply::Done { matched, more, .. } => Ok((matched, more)),
                    BulkReply::Continues(_) => Err(Failure::Found(
                        "the server changes what it was to count".to_owned(),
                    )),
                }
            }
        }
    }

    /// Changes all tasks that match; says how many did, and what came of them.
    pub(crate) async fn change_all(
        &self,
        filter: Filter,
        action: Action,
        reason: Option<Reason>,
    ) -> Result<(usize, Answers), Failure> {
        let progress = Progress::begin();
        let came = match self {
            Self::Store(operations) => {
                let operations = operations.clone().because(reason);
                // Of tasks that are left out the log says why, which is this process' own.
                let log = tracing_subscriber::fmt()
                    .with_writer(std::io::stderr)
                    .with_max_level(tracing::Level::WARN)
                    .without_time()
                    .with_target(false)
                    .with_ansi(false)
                    .finish();
                let changing = async {
                    match operations.change_all(filter, action).await? {
                        Changed::Done { matched, answers, .. } => Ok((matched, answers)),
                        Changed::Begun(work) => {
                            let ended = work.run(&progress).await;
                            let (seen, answers) = *progress.counts();
                            ended
                                .map(|_| (seen, answers))
                                .map_err(|refusal| cut_off(&answers, refusal.into()))
                        }
                    }
                };
                changing.with_subscriber(log).await
            }
            Self::Server(server) => {
                let body = because(body_of(action), reason.as_ref());
                match server.bulk(&filter, action, body).await? {
                    BulkReply::Done { matched, answers, .. } => Ok((matched, answers.unwrap_or_default())),
                    BulkReply::Continues(job) => server.follow(job, &progress).await,
                }
            }
        };
        progress.bar.finish_and_clear();
        came
    }
}

/// Says of a change that has failed how much of it was done; of one that was refused before that there is nothing to say.
fn cut_off(answers: &Answers, failure: Failure) -> Failure {
    match answers.sum() {
        0 => failure,
        _ => Failure::Found(format!(
            "the change has failed with {} tasks changed: {failure}",
            answers.done
        )),
    }
}

impl Server {
    async fn bulk(
        &self,
        filter: &Filter,
        action: Action,
        mut body: Map<String, Value>,
    ) -> Result<BulkReply, Failure> {
        let time = |time: Option<delayline::Timestamp>| time.map(|time| time.to_string());
        let filter = json!({
            "kind": filter.kinds.first().map(ToString::to_string),
            "due_after": time(filter.due_after),
            "due_before": time(filter.due_before),
            "key_prefix": filter.key_prefix,
            "error": filter.error,
        });
        body.insert("filter".to_owned(), filter);
        let url = self.path(&[format!("tasks:{}", name(action))])?;
        match self.post(url, &body).await? {
            Answered::Found(came) => Ok(came),
            _ => Err(Refusal::NoJob.into()),
        }
    }

    /// Waits until a change has ended that goes on at the server; it goes on there also if this process is gone.
    async fn follow(&self, mut job: Job, progress: &Progress) -> Result<(usize, Answers), Failure> {
        let url = self.path(&["bulk", &job.id])?;
        // A caller that takes it for failed would begin another one, beside it.
        let lost = |id: &str, why: &dyn Display| {
            let id = one_line(id);
            Failure::Found(format!(
                "{why}; the change {id} goes on unless its server has ended: GET {url} says how far it has come"
            ))
        };
        let mut answered = Instant::now();
        loop {
            progress.set(job.seen, job.answers);
            match job.state {
                JobState::Running => {}
                JobState::Done => return Ok((job.seen, job.answers)),
                state => {
                    let changed = job.answers.done;
                    let why = job.error.as_deref().map_or("it was stopped", |error| error);
                    return Err(Failure::Found(format!(
                        "the change has ended as {state:?} with {changed} tasks changed: {}",
                        one_line(why)
                    )));
                }
            }
            job = loop {
                tokio::time::sleep(LOOK_EVERY).await;
                match self.look(url.clone()).await {
                    Ok(Some(job)) => break job,
                    Ok(None) => return Err(lost(&job.id, &Refusal::NoJob)),
                    Err(failure) if answered.elapsed() > PATIENCE => return Err(lost(&job.id, &failure)),
                    Err(_) => {}
                }
            };
            answered = Instant::now();
        }
    }
}

/// Shows how far a change has come.
#[derive(Debug)]
struct Progress {
    bar: ProgressBar,
    counts: Mutex<(usize, Answers)>,
}

impl Progress {
    fn begin() -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(0),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} {elapsed}") {
            bar.set_style(style);
        }
        Self {
            bar,
            counts: Mutex::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, (usize, Answers)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, seen: usize, answers: Answers) {
        *self.counts() = (seen, answers);
        self.bar.set_length(seen as u64);
        self.bar.set_position(answers.sum() as u64);
    }
}

impl Follower for Progress {
    type Permit = ();

    async fn next_step(&self) -> Option<()> {
        Some(())
    }

    fn record(&self, found: usize, answers: &Answers) {
        let (seen, mut sum) = *self.counts();
        sum.add(answers);
        self.set(seen + found, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_whose_server_does_not_answer_is_said_to_go_on_and_where() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let server = Server::new("--server", &url, None).unwrap();
        let job = Job {
            id: "5f0c2a9e11d84b37".to_owned(),
            state: JobState::Running,
            seen: 5_000,
            answers: Answers::default(),
            error: None,
        };
        let begun = Instant::now();
        let lost = server.follow(job, &Progress::begin()).await.unwrap_err();
        assert!(begun.elapsed() > PATIENCE);
        let said = lost.to_string();
        assert!(
            said.contains("no connection")
                && said.contains("the change 5f0c2a9e11d84b37 goes on")
                && said.contains(&format!("GET {url}/v1/bulk/5f0c2a9e11d84b37 ")),
            "{said}"
        );
    }
}
