//! A receiver of webhooks of a test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What has come.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// That it is signed with this secret, as the library of the specification has it.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let webhook = standardwebhooks::Webhook::new(secret).unwrap();
        webhook.verify(&self.body, &self.headers).is_ok()
    }
}

/// Listens on a port of this machine's that is free, and ends with the test.
pub(crate) struct Receiver {
    pub(crate) port: u16,
    received: mpsc::UnboundedReceiver<Received>,
    serving: JoinHandle<()>,
}

impl Receiver {
    /// Answers what comes by `answer`, which is given how many came before.
    pub(crate) async fn start<A>(answer: impl Fn(usize) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = Response> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (send, received) = mpsc::unbounded_channel();
        let (answer, before) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let receive = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let path = uri.path().to_owned();
            // The test may have ended.
            let _ = send.send(Received { path, headers, body });
            answer(before.fetch_add(1, Ordering::Relaxed))
        };
        let router = Router::new().fallback(receive);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            port,
            received,
            serving,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hooks", self.port)
    }

    pub(crate) async fn next(&mut self) -> Received {
        self.received.recv().await.unwrap()
    }

    /// Whether nothing has come that the test has not looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
