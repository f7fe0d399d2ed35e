//! The configuration is read again while the server runs.

use std::path::PathBuf;
use std::sync::Arc;

use delayline::Worker;
use delayline::store::Keep;
use delayline::{Kind, Scheduler};

use super::config::{Changes, Config, Flags};
use super::delivering::Delivering;
use super::http::{Access, App, Current, Pages};
use super::open;
use super::test_clock::TestClock;
use super::workers::Workers;
use crate::Failure;

/// What readings of the configuration are counted by.
const RELOADS: &str = "delayline.config.reloads";
const APPLIED: &str = "applied";
const UNCHANGED: &str = "unchanged";
const REFUSED: &str = "refused";

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) file: Option<PathBuf>,
    pub(super) flags: Flags,
    pub(super) is_test_clock: bool,
}

impl Source {
    /// What is said there now, if it can be used.
    pub(super) fn read(&self) -> Result<Config, Failure> {
        let config = Config::read(self.file.as_deref(), self.flags.clone());
        let config = config.map_err(|mistake| Failure::Argument(mistake.to_string()))?;
        if self.is_test_clock {
            TestClock::check(&config)?;
        }
        open::Parts::check(&config)?;
        Ok(config)
    }
}

/// A server, and the configuration that it runs by.
pub(super) struct Running {
    pub(super) source: Source,
    pub(super) config: Config,
    pub(super) delivering: Delivering,
    pub(super) workers: Workers,
    pub(super) app: Arc<App>,
}

/// All that another configuration makes, before any of it is used.
struct Next {
    config: Config,
    worker: Worker,
    current: Current,
    access: Access,
    pages: Pages,
}

/// Why the configuration that was read is not used.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Wrong(#[from] Failure),
    #[error("{} differ, and only a start takes them over: restart the server, or set them back", .0.join(", "))]
    Restart(Vec<String>),
}

impl Running {
    /// Reads the configuration again and goes by it, if all of it can be used; else by the one before, as a whole. Until it is
    /// about to be used this may be dropped.
    pub(super) async fn reload(&mut self) {
        match self.next().await {
            Ok(None) => {
                count(UNCHANGED);
                tracing::info!("the configuration was read again, and nothing has changed");
            }
            Ok(Some((next, changes))) => {
                self.apply(next, &changes);
                count(APPLIED);
                tracing::info!(
                    changed = changes.live.join(", "),
                    "the configuration was read again, and holds from now on; what is under way ends as it began"
                );
            }
            Err(refused) => {
                count(REFUSED);
                tracing::error!(
                    %refused,
                    "the configuration was read again and is not used, nor any part of it; the server goes on by the one before"
                );
            }
        }
    }

    async fn next(&mut self) -> Result<Option<(Next, Changes)>, Refused> {
        let config = self.source.read()?;
        let changes = self.config.changes(&config);
        if !changes.restart.is_empty() {
            return Err(Refused::Restart(changes.restart));
        }
        if changes.live.is_empty() {
            return Ok(None);
        }
        let (worker, current) = self.delivering.by(&config).await?;
        // The next worker asks this, too, and an error would end it, and the server with it.
        if let Err(error) = self.app.store.check().await
            && !error.is_transient()
        {
            return Err(Failure::from(error).into());
        }
        let access = access(&config);
        let pages = Pages::new(&access).map_err(no_chance)?;
        let next = Next {
            config,
            worker,
            current,
            access,
            pages,
        };
        Ok(Some((next, changes)))
    }

    /// Nothing in here fails or waits: so either all of it holds, or nothing.
    fn apply(&mut self, next: Next, changes: &Changes) {
        let Next {
            config,
            worker,
            current,
            access,
            pages,
        } = next;
        keep(&self.delivering.scheduler, &config);
        #[cfg(feature = "rocketmq")]
        if let (Some(publishing), Some(gateway)) = (&self.delivering.publishing, &config.gateway) {
            publishing.set(gateway.get_ref().clone());
        }
        if let Some(test_clock) = &self.delivering.test_clock {
            test_clock.deliver_by(&config);
        }
        // Sessions end with the tokens that they are sealed by, and with no others.
        if changes.live.iter().any(|setting| setting.starts_with("http.")) {
            self.app.access.replace(&access);
            self.app.pages.replace(&pages);
            let several = config.http.tokens.len() > 1;
            for room in self.app.rooms() {
                room.set_several(several);
            }
        }
        self.app.current.send_replace(Arc::new(current));
        self.workers.replace(worker);
        self.config = config;
    }
}

/// Counts a reading, before it is logged: what the log says is in the figures.
fn count(outcome: &'static str) {
    metrics::counter!(RELOADS, "outcome" => outcome).increment(1);
}

/// Tells how often the configuration was read again, from none on.
pub(super) fn describe() {
    metrics::describe_counter!(
        RELOADS,
        "how often the configuration was read again, and what came of it"
    );
    for outcome in [APPLIED, UNCHANGED, REFUSED] {
        metrics::counter!(RELOADS, "outcome" => outcome).increment(0);
    }
}

/// The tokens that a configuration lets in.
pub(super) fn access(config: &Config) -> Access {
    let tokens = config.http.tokens.iter();
    Access::new(
        tokens.map(|token| token.get_ref().clone()),
        config.http.trusted_proxies.clone(),
    )
}

pub(super) fn no_chance(error: impl std::fmt::Display) -> Failure {
    Failure::Found(format!("the system has no random numbers: {error}"))
}

/// What is kept of the tasks of each kind, as a configuration says.
pub(super) fn keep(scheduler: &Scheduler, config: &Config) {
    let kinds = config.kinds().into_iter();
    let keeps: Vec<(Kind, Keep)> = kinds.map(|kind| (kind.kind, kind.keep)).collect();
    // Their names were looked at when it was read, and each is there once.
    if let Err(error) = scheduler.keep(keeps) {
        tracing::error!(%error, "what is kept of kinds could not be set");
    }
}

/// Listens for SIGHUP from now on; each wait ends with the next. Signals that come together are one.
pub(super) struct Asked {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Asked {
    pub(super) fn listen() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        // Nothing can ask.
        std::future::pending().await
    }
}
