//! Listens on a channel.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::address::Address;
use super::failure::Role;
use crate::clock::backoff::{Backoff, jittered};

/// How often an idle connection is tested: only so is a dead one found.
const ASK_EVERY: Duration = Duration::from_secs(8);
/// How long that may take, and how long connecting may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Receives the messages of a channel.
pub(crate) trait MessageListener: Send + Sync + 'static {
    /// Handles a message: bytes from any client that may publish there.
    fn message(&self, text: &[u8]);

    /// Listening has begun: earlier messages were missed.
    fn begins(&self);

    /// Listening has ended: messages may be missed from now on.
    fn ends(&self);
}

/// Listens on a channel until it is aborted, and reconnects whenever the connection is lost.
pub(crate) async fn listen(
    address: &Address,
    role: Role,
    channel: &str,
    listener: Arc<impl MessageListener>,
) {
    let mut backoff = Backoff::CALLS;
    loop {
        let mut has_begun = false;
        let listened = listen_once(address, channel, &listener, &mut has_begun).await;
        if has_begun {
            backoff.succeeded();
            listener.ends();
        }
        match listened {
            Err(error) if backoff.failures() == 0 => {
                let error = role.failure(address, error);
                tracing::warn!(
                    %error, channel,
                    "Redis cannot tell of what other processes schedule, so it is asked often instead, which costs \
                     it more; see whether the account may subscribe"
                );
            }
            _ => tracing::debug!(channel, "listening was interrupted"),
        }
        tokio::time::sleep(jittered(backoff.failed(Instant::now()))).await;
    }
}

/// Listens until the connection is lost.
async fn listen_once(
    address: &Address,
    channel: &str,
    listener: &Arc<impl MessageListener>,
    has_begun: &mut bool,
) -> RedisResult<()> {
    let lost = Arc::new(Notify::new());
    let mut connection = limited(connect(address, listener.clone(), lost.clone())).await?;
    limited(connection.subscribe(channel)).await?;
    *has_begun = true;
    listener.begins();
    loop {
        if tokio::time::timeout(ASK_EVERY, lost.notified()).await.is_ok() {
            return Ok(());
        }
        limited(redis::cmd("PING").query_async::<()>(&mut connection)).await?;
    }
}

async fn connect(
    address: &Address,
    listener: Arc<impl MessageListener>,
    lost: Arc<Notify>,
) -> RedisResult<MultiplexedConnection> {
    let on_push = move |push: PushInfo| match push.kind {
        PushKind::Message => {
            if let Some(Value::BulkString(text)) = push.data.get(1) {
                listener.message(text);
            }
        }
        PushKind::Disconnection => lost.notify_one(),
        _ => {}
    };
    address.connect_listening(on_push).await
}

async fn limited<T>(call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    tokio::time::timeout(LIMIT, call)
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}
