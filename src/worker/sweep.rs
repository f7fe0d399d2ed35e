//! The safety net: rows whose time to be looked at has passed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

use super::Stop;
use super::arrivals::act;
use super::engine::Engine;
use super::renewing;
use crate::backend::TableBackend;
use crate::store::Sweep;
use crate::{Error, WokenBy, defaults};

/// Looks, again and again until stopped, for rows whose wake-up did not come, whose lease has ended, or whose history
/// is over. It needs no backend: with all of them away tasks still run, each up to one pause late.
pub(crate) async fn sweep(engine: Arc<Engine>, mut stopped: watch::Receiver<Stop>) {
    let clock = &engine.parts.clock;
    // Several workers started together should not sweep together.
    let millis = u64::try_from(engine.sweep_every.as_millis()).unwrap_or(u64::MAX);
    let mut pause = Duration::from_millis(clock.random_below(millis));
    let mut until_purge = 0_u32;
    loop {
        let told = async {
            clock.sleep(TOLD_PAUSE).await;
            engine.parts.store.notified().await;
        };
        let is_told = tokio::select! {
            biased;
            _ = stopped.wait_for(|&stop| stop > Stop::No) => return,
            () = clock.sleep(pause) => false,
            // Another process has scheduled what is due soon, and its wake-ups may be out of reach.
            () = told => true,
        };
        pause = engine.sweep_every;
        match sweep_once(&engine).await {
            Ok(next) => pause = pause.min(next),
            Err(error) => warn!(%error, "the sweep failed and will be repeated"),
        }
        if is_told {
            // What was due at once is no longer ahead, and not yet overdue.
            engine.look_for_due();
        }
        if until_purge > 0 {
            until_purge -= 1;
            continue;
        }
        match purge(&engine).await {
            // There is more: go on at once, but after the next sweep, whose rows are waited for.
            Ok(full) if full => pause = Duration::ZERO,
            Ok(_) => until_purge = PURGE_EVERY,
            Err(error) => {
                until_purge = PURGE_EVERY;
                warn!(%error, "old history was not removed; that will be repeated");
            }
        }
    }
}

/// The least pause before a sweep because of what another process says, however much it says.
const TOLD_PAUSE: Duration = Duration::from_millis(20);

/// Sweeps between two removals of history: one in half a minute, by default.
const PURGE_EVERY: u32 = 60;

/// Says when to sweep again at the latest.
async fn sweep_once(engine: &Arc<Engine>) -> Result<Duration, Error> {
    let parts = &engine.parts;
    let now = engine.now();
    if engine.lanes.values().any(|lane| lane.is_unsure(&now)) {
        // Claims of its own that it may still have are kept, rather than ended and taken again.
        renewing::renew(engine).await;
    }
    let table = parts.table.as_deref();
    let table_asked = table.map(TableBackend::elapsed).unwrap_or_default();
    let sweep = Sweep {
        limit: defaults::SWEEP_LIMIT,
        retake: defaults::RETAKE,
        ahead: table.map(TableBackend::wanted),
    };
    // Half, so that wake-ups that arrive meanwhile find room too.
    let reserved = engine.reserve(|lane| lane.room().div_ceil(2));
    let asked = parts.clock.moment();
    let looked = parts.store.sweep(&reserved.claim, &sweep).await?;
    let mut next = Duration::MAX;
    if let Some(table) = table {
        next = table.looked(table_asked, looked.now, &looked.found.ahead);
    }
    let taken = looked.found.claimed.len() + looked.found.early.len();
    for task in &looked.found.claimed {
        // Where one was overdue there may be many: they need not wait for one sweep after the other.
        if let Some(lane) = engine.lanes.get(&task.kind) {
            lane.set_backlog(true);
        }
    }
    let left = act(engine, looked, asked, reserved, WokenBy::Sweep).await?;
    engine.room.notify_one();
    if taken - left >= defaults::SWEEP_LIMIT {
        // There is more, and a place for it.
        next = Duration::ZERO;
    }
    Ok(next)
}

/// Says whether there is more to remove right away.
async fn purge(engine: &Engine) -> Result<bool, Error> {
    let purged = engine.parts.store.purge(defaults::BATCH).await?;
    let purged = usize::try_from(purged).unwrap_or(usize::MAX);
    engine.parts.counters.purged.add(purged);
    Ok(purged >= defaults::BATCH)
}
