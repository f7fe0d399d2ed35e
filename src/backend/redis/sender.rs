//! Sends wake-ups to their shards, and removes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::grouped::grouped;
use super::keys::Names;
use super::member::{self, Member};
use super::shards::{Shard, Shards};
use crate::backend::{Departure, SendError, Wake};
use crate::redis::{Call, Link, Lua, lua};
use crate::{Error, defaults};

/// The longest delay: 100 years. A score is a double, which is exact for every ms of it.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(100 * 366 * 86_400);

static SEND: Lua = lua!("send.lua");

/// Sends wake-ups to their shards, and removes them from there.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) link: Arc<Link>,
    pub(super) names: Names,
    pub(super) shards: Shards,
    /// Whether it was checked that this account may publish.
    pub(super) asked: AtomicBool,
}

impl Sender {
    pub(super) async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let shards = self.shards.number(&self.link).await;
        let shards = shards.map_err(|cause| SendError::all(batch.len(), cause))?;
        let parts = grouped(batch.iter().enumerate(), shards, |(_, departure)| {
            departure.wake.id
        });
        // All at once: a caller waits for one time-out at the most.
        let sent = join_all(parts.iter().map(|(shard, part)| self.send_part(*shard, part))).await;
        let mut failed = Vec::new();
        let mut failure = None;
        for ((_, part), sent) in parts.into_iter().zip(sent) {
            if let Err(cause) = sent {
                failed.extend(part.into_iter().map(|(at, _)| at));
                failure.get_or_insert(cause);
            }
        }
        if failure.is_none() && !self.asked.swap(true, Ordering::Relaxed) {
            self.ask_to_publish().await;
        }
        failed.sort_unstable();
        failure.map_or(Ok(()), |cause| Err(SendError { failed, cause }))
    }

    /// Warns if this account may not publish hints: the script that sends goes on without.
    async fn ask_to_publish(&self) {
        // Listeners do not read it as a hint.
        let mut command = redis::cmd("PUBLISH");
        command.arg(&self.names.hints).arg("");
        let asked: Result<u64, _> = self
            .link
            .call(defaults::SEND_TIMEOUT, &Call::command(command))
            .await;
        if let Err(error) = asked
            && !error.is_transient()
        {
            tracing::warn!(
                %error, channel = self.names.hints,
                "other processes are not notified of the wake-ups that this one sends, so tasks that are due soon start up to \
                 seconds late: the account needs `+publish`, and the channel"
            );
        }
    }

    async fn send_part(&self, shard: Shard, part: &[(usize, &Departure)]) -> Result<(), Error> {
        let kinds: BTreeSet<_> = part.iter().map(|(_, departure)| &departure.wake.kind).collect();
        let held = part
            .iter()
            .map(|(_, Departure { wake, delay })| (whole_millis(*delay), Member::of(wake)));
        let keys = self.names.shard(shard);
        let mut call = Call::script(&SEND, &[&keys.due, &keys.kinds]);
        call.arg(&self.names.hints).arg(shard.0).arg(kinds.len());
        let mut delays = held.clone().map(|(delay, _)| delay);
        let first = delays.next();
        let delay_of_all = first.filter(|first| delays.all(|delay| delay == *first));
        match delay_of_all {
            Some(delay) => call.arg(delay),
            None => call.arg(""),
        };
        for kind in kinds {
            call.arg(&member::number(kind)[..]).arg(kind.as_str());
        }
        for (delay, member) in held {
            if delay_of_all.is_none() {
                call.arg(delay);
            }
            call.arg(member.as_ref());
        }
        self.link.call(defaults::SEND_TIMEOUT, &call).await
    }

    pub(super) async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        let shards = self.shards.number(&self.link).await?;
        let grouped = grouped(wakes, shards, |wake| wake.id).into_iter();
        let removed = grouped.map(|(shard, wakes)| async move {
            let mut command = redis::cmd("ZREM");
            command.arg(self.names.shard(shard).due);
            for wake in wakes {
                command.arg(Member::of(wake).as_ref());
            }
            let call = Call::command(command);
            self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await
        });
        join_all(removed).await.into_iter().collect()
    }
}

/// Converts the delay to whole ms, rounded up, so that it is not early.
fn whole_millis(delay: Duration) -> u64 {
    let nanos = delay.min(MAX_DELAY).as_nanos();
    u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
