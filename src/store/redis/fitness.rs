//! Whether a server keeps what it is given, and others are told of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, warn};

use super::answer::Items;
use super::database::{Database, LOOK};
use super::shards::Shard;
use crate::Error;
use crate::redis::{Node, Role};

/// For how long it is believed what a server says of itself: an operator may change its settings while it runs.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// What the servers of shards have said of themselves.
#[derive(Debug, Default)]
pub(super) struct Fitness {
    shards: Mutex<BTreeMap<Shard, Known>>,
    /// Whether people were told that it cannot be found out, and that others are not told.
    told: Told,
}

#[derive(Debug, Default)]
struct Told {
    unknown: AtomicBool,
    unheard: AtomicBool,
}

/// What a server has said, and when.
#[derive(Clone, Debug)]
struct Known {
    at: Instant,
    /// The policy by which it removes rows.
    evicts: Option<String>,
}

impl Fitness {
    fn shards(&self) -> MutexGuard<'_, BTreeMap<Shard, Known>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Database {
    /// Fails if the server of a shard removes rows when its memory is full, as far as is known. It is asked before the
    /// first write, and once a minute while there are any.
    pub(super) async fn keeps(&self, shard: Shard) -> Result<(), Error> {
        let known = self.fitness.shards().get(&shard).cloned();
        let now = self.clock.instant();
        match known {
            Some(known) if now.saturating_duration_since(known.at) < BELIEVED_FOR => refused(known.evicts),
            known => match (self.ask_fitness(shard).await, known) {
                // Who is asked next will say that it does not answer.
                (Err(error), Some(known)) if error.is_transient() => refused(known.evicts),
                (answered, _) => answered,
            },
        }
    }

    /// The same, asked now.
    pub(super) async fn ask_fitness(&self, shard: Shard) -> Result<(), Error> {
        let at = self.clock.instant();
        let mut call = self.script(&LOOK, shard);
        call.arg("fit").arg(self.listener.channel());
        let mut said = Items::of(self.read(call).await?.found)?;
        let (info, unheard) = (said.text()?, said.text()?);
        let node = Node::read(&info);
        let told = &self.fitness.told;
        if node.policy.is_empty() && !told.unknown.swap(true, Ordering::Relaxed) {
            warn!(
                server = ?self.settings.address,
                "whether this server removes tasks when its memory is full cannot be found out, as the account has no \
                 right to INFO: see that `maxmemory-policy` is `noeviction`, or give it `+info`"
            );
        }
        if !unheard.is_empty() && !told.unheard.swap(true, Ordering::Relaxed) {
            warn!(
                server = ?self.settings.address, channel = self.listener.channel(), error = unheard,
                "other processes are not told of what this one schedules, and start tasks that are due at once up to \
                 seconds late: the account needs `+publish`, and the channel"
            );
        }
        let evicts = evicts(node);
        if let Some(policy) = &evicts {
            error!(
                server = ?self.settings.address, policy,
                "this server removes tasks when its memory is full, so it is given no new ones: set its \
                 `maxmemory-policy` to `noeviction`"
            );
        }
        let known = Known {
            at,
            evicts: evicts.clone(),
        };
        self.fitness.shards().insert(shard, known);
        refused(evicts)
    }
}

/// The policy by which a server removes rows, if it does.
fn evicts(node: Node) -> Option<String> {
    node.evicts().then_some(node.policy)
}

fn refused(evicts: Option<String>) -> Result<(), Error> {
    let Some(policy) = evicts else {
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
