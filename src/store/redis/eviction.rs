//! Refuses new rows where a server would remove rows when its memory is full.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, warn};

use super::database::Database;
use crate::redis::{Call, Node, Role};
use crate::{Error, defaults};

/// For how long it is believed what a server says of itself: an operator may change its settings while it runs.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// What the servers have said of themselves: when, and the policy by which one of them removes rows.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    known: Mutex<Option<(Instant, Option<String>)>>,
    /// Whether it was logged that it cannot be found out, and that nothing can be published.
    unknown: OnceLock<()>,
    unheard: OnceLock<()>,
}

impl Eviction {
    fn known(&self) -> MutexGuard<'_, Option<(Instant, Option<String>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Database {
    /// Fails if a server removes rows when its memory is full, as far as is known. They are asked before the first row is
    /// written, and once a minute while there are any.
    pub(super) async fn keeps(&self) -> Result<(), Error> {
        let known = match &mut *self.eviction.known() {
            Some((at, policy)) if at.elapsed() < BELIEVED_FOR => Some(policy.clone()),
            Some((at, _)) => {
                // Other callers believe it meanwhile.
                *at = Instant::now();
                None
            }
            None => None,
        };
        match known {
            Some(policy) => refused(policy),
            None => self.keeps_now().await,
        }
    }

    /// The same, asked now.
    pub(super) async fn keeps_now(&self) -> Result<(), Error> {
        let (at, server, channel) = (Instant::now(), &self.settings.address, self.listener.channel());
        let policy = match Node::all(&self.link).await {
            Ok(nodes) => nodes.into_iter().find_map(evicts),
            // The write itself will say that it does not answer.
            Err(error) if error.is_transient() => {
                self.eviction.known().clone().and_then(|(_, policy)| policy)
            }
            Err(error) => {
                if self.eviction.unknown.set(()).is_ok() {
                    warn!(
                        ?server, %error,
                        "whether this server removes tasks when its memory is full cannot be found out: see that \
                         `maxmemory-policy` is `noeviction`, or give the account `+info`"
                    );
                }
                None
            }
        };
        // To those that listen it is no message.
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg("");
        let published = self
            .link
            .call::<i64>(defaults::SEND_TIMEOUT, &Call::command(publish))
            .await;
        if let Err(error) = published
            && !error.is_transient()
            && self.eviction.unheard.set(()).is_ok()
        {
            warn!(
                ?server, channel, %error,
                "other processes are not told of what this one schedules, and start tasks that are due at once up to \
                 30 s late (10 s with one shard): the account needs `+publish`, and the channel"
            );
        }
        if let Some(policy) = &policy {
            error!(
                ?server,
                policy,
                "this server removes tasks when its memory is full, so it is given no new ones: set its \
                 `maxmemory-policy` to `noeviction`"
            );
        }
        *self.eviction.known() = Some((at, policy.clone()));
        refused(policy)
    }
}

/// The policy by which a server removes rows, if it does.
fn evicts(node: Node) -> Option<String> {
    node.evicts().then_some(node.policy)
}

fn refused(policy: Option<String>) -> Result<(), Error> {
    let Some(policy) = policy else {
        return Ok(());
    };
    let why = format!(
        "the server's `maxmemory-policy` is {policy}: it would remove tasks when its memory is full; `noeviction` is safe"
    );
    Err(Role::Store.error(false, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_removes_keys_is_refused() {
        let info = |most: u64, policy: &str| {
            format!("# Memory\r\nmaxmemory:{most}\r\nmaxmemory_policy:{policy}\r\n")
        };
        for (most, policy, is_refused) in [
            (0, "allkeys-lru", false),
            (1 << 30, "allkeys-lru", true),
            (1 << 30, "allkeys-random", true),
            (1 << 30, "noeviction", false),
            (1 << 30, "volatile-ttl", false),
        ] {
            let refused = refused(evicts(Node::read(&info(most, policy))));
            assert_eq!(refused.is_err(), is_refused, "{policy}");
            assert!(refused.is_ok() || !refused.unwrap_err().is_transient());
        }
        assert!(refused(evicts(Node::read(""))).is_ok());
    }
}
