//! The connection on which messages come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult};
use tokio::sync::Notify;

use super::hints::Hints;
use super::pause::pause;
use crate::redis::Link;

/// How often it is asked whether the connection still leads to a server.
const ASK_EVERY: Duration = Duration::from_secs(8);
/// How long that may take, and how long connecting may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Listens on a channel, and gives what comes to the hints.
pub(super) struct Listener {
    pub(super) link: Arc<Link>,
    pub(super) channel: String,
    pub(super) hints: Arc<Hints>,
    /// Whether messages come now.
    pub(super) is_told: Arc<AtomicBool>,
}

impl Listener {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        let mut failures = 0;
        loop {
            match self.listen(&mut failures).await {
                Ok(()) => tracing::debug!("listening for earlier wake-ups was interrupted"),
                Err(error) if failures == 0 => {
                    let error = self.link.role().failure(self.link.address(), error);
                    tracing::warn!(%error, "cannot listen for earlier wake-ups; looking for them often instead");
                }
                Err(_) => {}
            }
            if self.is_told.swap(false, Ordering::Relaxed) {
                // Whoever sleeps has to look by itself from now on.
                self.hints.missed();
            }
            tokio::time::sleep(pause(failures)).await;
            failures += 1;
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&self, failures: &mut u32) -> RedisResult<()> {
        let lost = Arc::new(Notify::new());
        let mut connection = limited(self.connect(lost.clone())).await?;
        limited(connection.subscribe(&self.channel)).await?;
        *failures = 0;
        self.is_told.store(true, Ordering::Relaxed);
        // What was sent before this moment was sent to nobody.
        self.hints.missed();
        loop {
            if tokio::time::timeout(ASK_EVERY, lost.notified()).await.is_ok() {
                return Ok(());
            }
            // A connection may lead to nowhere without an end that TCP shows.
            limited(redis::cmd("PING").query_async::<()>(&mut connection)).await?;
        }
    }

    async fn connect(&self, lost: Arc<Notify>) -> RedisResult<MultiplexedConnection> {
        let hints = self.hints.clone();
        let told = move |push: PushInfo| match push.kind {
            PushKind::Message => {
                if let Some(redis::Value::BulkString(text)) = push.data.get(1) {
                    hints.message(text);
                }
            }
            PushKind::Disconnection => lost.notify_one(),
            _ => {}
        };
        self.link.address().connect_listening(told).await
    }
}

async fn limited<T>(call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    tokio::time::timeout(LIMIT, call)
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}
