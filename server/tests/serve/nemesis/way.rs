//! Asks servers over HTTP that may not be there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::sleep;

/// For how long an answer is waited for: longer than a server is stopped.
const TIME_LIMIT: Duration = Duration::from_secs(12);
/// After this what was not answered is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Where the servers are.
#[derive(Clone, Debug)]
pub(super) struct Way {
    client: Client,
    urls: Arc<Mutex<[String; 2]>>,
}

impl Way {
    pub(super) fn to(urls: [String; 2]) -> Self {
        let client = Client::builder().timeout(TIME_LIMIT).build().unwrap();
        let urls = Arc::new(Mutex::new(urls));
        Self { client, urls }
    }

    /// A server has come back elsewhere.
    pub(super) fn set(&self, server: usize, url: &str) {
        url.clone_into(&mut self.urls.lock().unwrap()[server]);
    }

    /// The status and the body that a server answers; none, if it is not there, or does not know.
    pub(super) async fn ask(
        &self,
        server: usize,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        answered(self.request(server, method, path).json(body)).await
    }

    fn request(&self, server: usize, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.urls.lock().unwrap()[server]);
        self.client.request(method, url)
    }

    /// Asks whichever server until one has answered.
    pub(super) async fn until_answered(&self, path: &str) {
        loop {
            let (server, nothing) = (fastrand::usize(..2), json!({}));
            if let Some((status, said)) = self.ask(server, Method::POST, path, &nothing).await {
                assert_eq!(status, 200, "{path}: {said}");
                return;
            }
            sleep(AGAIN).await;
        }
    }

    /// Schedules tasks, by a request of this name, until that is answered.
    pub(super) async fn schedule(&self, name: &str, tasks: &[Value]) {
        loop {
            let request = self.request(fastrand::usize(..2), Method::POST, "/v1/tasks");
            let request = request.header("Idempotency-Key", name).json(tasks);
            if let Some((status, said)) = answered(request).await {
                assert_eq!(status, 200, "{name}: {said}");
                let answers = said.as_array().unwrap();
                let is_new = |each: &Value| each["answer"] == "new";
                if answers.len() == tasks.len() && answers.iter().all(is_new) {
                    return;
                }
                // Of an array some may not have been answered by the store.
                let unknown = |each: &Value| is_new(each) || each["status"] == 503;
                assert!(answers.iter().all(unknown), "{name}: {said}");
            }
            sleep(AGAIN).await;
        }
    }
}

async fn answered(request: RequestBuilder) -> Option<(u16, Value)> {
    let answer = request.send().await.ok()?;
    let status = answer.status();
    let body = answer.json().await.ok()?;
    (!status.is_server_error()).then_some((status.as_u16(), body))
}
