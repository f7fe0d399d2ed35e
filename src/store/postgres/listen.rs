//! Hears of rows that others have scheduled.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::clock::background::Background;
use crate::store::sql::{Away, LIVES_FOR};

/// After how long it is tried again to listen.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// For how long nothing may be said before the connection is tried.
const QUIET: Duration = Duration::from_secs(10);
/// For how long the server may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Listens on one channel for every waiter of this process, from the first one on.
pub(super) struct Listener {
    options: PgConnectOptions,
    /// None: nothing is said.
    channel: Option<String>,
    clock: Clock,
    heard: Arc<Notify>,
    /// Ends with the listener, or with its runtime.
    listening: Background,
}

impl Listener {
    pub(super) fn new(options: PgConnectOptions, channel: Option<String>, clock: Clock) -> Self {
        Self {
            options,
            channel,
            clock,
            heard: Arc::default(),
            listening: Background::default(),
        }
    }

    /// Waits for a notification, or for a moment after which one may have been missed.
    pub(super) async fn notified(&self) {
        let Some(channel) = &self.channel else {
            return pending().await;
        };
        self.listening.keep(|| {
            let (options, channel) = (self.options.clone(), channel.clone());
            let (clock, heard) = (self.clock.clone(), Arc::clone(&self.heard));
            self.clock.spawn(async move {
                loop {
                    if let Err(error) = listen(&options, &channel, &heard, &clock).await {
                        tracing::debug!(%error, "not listening; trying again");
                    }
                    clock.sleep(TRY_AGAIN).await;
                }
            })
        });
        self.heard.notified().await;
    }
}

/// Passes on what is heard until the connection fails for good, or is as old as one may be.
async fn listen(
    options: &PgConnectOptions,
    channel: &str,
    heard: &Notify,
    clock: &Clock,
) -> Result<(), sqlx::Error> {
    // The listener connects again by itself, by a pool.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_connect(|connection, _| {
            // Nothing may be said for long. Servers from 14 on have this.
            let forever =
                "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'";
            Box::pin(async move { sqlx::raw_sql(forever).execute(connection).await.map(drop) })
        })
        .connect_lazy_with(options.clone());
    let begun = async {
        let mut listener = PgListener::connect_with(&own).await?;
        listener.listen(channel).await?;
        Ok::<_, sqlx::Error>(listener)
    };
    let begun = clock.timeout(ANSWERS_WITHIN, begun).await;
    let mut listener = begun.unwrap_or_else(|| Err(Away(ANSWERS_WITHIN).into()))?;
    let began = clock.instant();
    // Whatever was said before it listened, or while it did not, was missed.
    wake_waiters(heard);
    while clock.instant() - began < LIVES_FOR {
        match clock.timeout(QUIET, listener.try_recv()).await {
            Some(said) => {
                said?;
                wake_waiters(heard);
            }
            None => {
                // Nothing is said, or the connection has fallen silent.
                let asked = clock.timeout(ANSWERS_WITHIN, sqlx::query("SELECT 1").execute(&mut listener));
                asked.await.unwrap_or_else(|| Err(Away(ANSWERS_WITHIN).into()))?;
            }
        }
    }
    Ok(())
}

/// Ends the wait of every waiter, and the next one too: a worker that sweeps at this moment may have looked
/// before the row was there.
fn wake_waiters(heard: &Notify) {
    heard.notify_waiters();
    heard.notify_one();
}
