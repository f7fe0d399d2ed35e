//! Posts due tasks to a URL, by Standard Webhooks: <https://www.standardwebhooks.com>.

mod answer;
mod guard;
mod headers;
mod repeated;
mod shortage;
mod signature;

use std::time::{Duration, SystemTime};

use delayline::{Outcome, Task};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response, redirect};
use url::Url;

pub(crate) use self::guard::Guard;
use self::repeated::Repeated;
use self::shortage::shortage;
pub(crate) use self::signature::Secrets;
use super::config::Endpoint;
use super::traces::Place;
use crate::Failure;
use crate::cause::cause;

/// How long an attempt may take, from looking up the host to the end of the answer, unless its kind says otherwise.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);
/// By how much later an attempt is ended from outside: what ends it here says more.
pub(crate) const MARGIN: Duration = Duration::from_secs(5);
/// How much of an answer is read, in bytes: when it is read to its end, its connection serves the next attempt too.
const MOST_READ: usize = 64 << 10;
/// How much of it is inspected: more than is kept, as a removed secret is longer than its replacement.
const LOOKED_AT: usize = 16 << 10;
/// How long a task waits that could not be posted for want of sockets.
const SHORTAGE: Duration = Duration::from_secs(1);
/// How long an idle connection is kept: less than the five seconds of many servers, as a task that is posted while they
/// close it is lost.
const IDLE: Duration = Duration::from_secs(4);

/// Posts the tasks of a kind.
pub(super) struct Webhook {
    client: Client,
    url: Url,
    repeated: Repeated,
    secrets: Secrets,
    /// How long an attempt may take.
    limit: Duration,
}

impl Webhook {
    pub(super) fn new(
        Endpoint { url, secrets }: Endpoint,
        guard: Guard,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let client = Client::builder()
            .user_agent(concat!("delayline/", env!("CARGO_PKG_VERSION")))
            .timeout(limit)
            .pool_idle_timeout(IDLE)
            .redirect(redirect::Policy::none())
            // A proxy would look up hosts by itself.
            .no_proxy()
            // The same in builds with other features.
            .http1_only()
            .dns_resolver(guard)
            .build()
            .map_err(|error| Failure::Found(format!("webhooks cannot be posted: {}", cause(&error))))?;
        Ok(Self {
            client,
            url: url.url().clone(),
            repeated: Repeated::of(url.url()),
            secrets,
            limit,
        })
    }

    /// Makes one attempt, and returns the outcome with the status of the answer, if any.
    pub(super) async fn deliver(&self, task: &Task, place: Option<Place>) -> (Outcome, Option<u16>) {
        match self.post(task, place).await {
            Ok(response) => {
                let status = response.status().as_u16();
                (self.answered(response).await, Some(status))
            }
            Err(outcome) => (outcome, None),
        }
    }

    /// Posts, and returns the answer, or the outcome of a task without one.
    async fn post(&self, task: &Task, place: Option<Place>) -> Result<Response, Outcome> {
        let Some(headers) = headers::headers(task, &self.secrets, SystemTime::now(), place) else {
            return Err(Outcome::Discard(
                "its headers are more than a request can have".to_owned(),
            ));
        };
        let request = self.client.post(self.url.clone()).headers(headers);
        let error = match request.body(task.payload.clone()).send().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        Err(match shortage(&error) {
            _ if error.is_timeout() => Outcome::Retry(format!("no answer within {:?}", self.limit)),
            Some(short) => {
                tracing::warn!(id = %task.id, error = %short, "a webhook could not be posted, as the server is short of sockets");
                Outcome::SnoozeBecause(format!("it could not be posted: {short}"), SHORTAGE)
            }
            None => Outcome::Retry(format!("no answer: {}", cause(&error))),
        })
    }

    async fn answered(&self, response: Response) -> Outcome {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).cloned();
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        let said = beginning(response).await;
        let said = self.secrets.hide(&String::from_utf8_lossy(&said));
        let said = self.repeated.hide(said);
        answer::outcome(status, retry_after, &said, SystemTime::now())
    }
}

/// Reads the beginning of the body of an answer. Where it does not come to its end, the status counts nevertheless.
async fn beginning(mut response: Response) -> Vec<u8> {
    let mut beginning = Vec::new();
    let mut read = 0;
    while read < MOST_READ
        && let Ok(Some(part)) = response.chunk().await
    {
        read += part.len();
        let room = LOOKED_AT - beginning.len();
        beginning.extend_from_slice(&part[..part.len().min(room)]);
    }
    beginning
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::serve::text::Text;

    /// Returns the outcome of a task whose receiver sends so much, and no more.
    async fn outcome(said: &'static str) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks?token=hunter2", listener.local_addr().unwrap());
        let receiver = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Data before the request is no answer.
            let _ = stream.read(&mut [0; 64]).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let endpoint = Endpoint {
            url: Text::plain(&url).try_into().unwrap(),
            secrets: Secrets::of(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]),
        };
        let webhook = Webhook::new(endpoint, Guard::default(), LIMIT).unwrap();
        let (outcome, _) = webhook.deliver(&task().await, None).await;
        receiver.abort();
        outcome
    }

    async fn task() -> Task {
        let scheduler = delayline::Scheduler::new(delayline::store::MemoryStore::new());
        let task = delayline::NewTask::new("k", &1);
        scheduler.schedule(task).await.unwrap().task().clone()
    }

    fn failed(reason: &str) -> Outcome {
        Outcome::Retry(reason.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_does_not_answer_is_waited_for_up_to_the_limit() {
        let begin = tokio::time::Instant::now();
        assert_eq!(outcome("").await, failed("no answer within 15s"));
        assert_eq!(begin.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_counts_where_the_body_does_not_end() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfine";
        assert_eq!(outcome(ok).await, Outcome::Done);
        let full = "HTTP/1.1 507 Full\r\ncontent-length: 10\r\n\r\nfull";
        assert_eq!(
            outcome(full).await,
            failed("answered 507 Insufficient Storage: full")
        );
    }

    #[tokio::test]
    async fn a_secret_that_is_repeated_is_not_kept() {
        let said = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 56\r\n\r\nnot signed with whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw!!";
        let expected = failed("answered 401 Unauthorized: not signed with whsec_…!!");
        assert_eq!(outcome(said).await, expected);
    }

    #[tokio::test]
    async fn what_is_no_answer_is_a_failure_that_does_not_tell_the_url() {
        let Outcome::Retry(reason) = outcome("SSH-2.0-OpenSSH_9.2\r\n").await else {
            panic!("it is no failure");
        };
        assert!(
            reason.starts_with("no answer: ") && !reason.contains("hunter2"),
            "{reason}"
        );
    }
}
