//! The safety net: rows whose time to be looked at has passed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::arrivals::act;
use super::engine::Engine;
use super::renewing;
use crate::backend::{LookAhead, WokenBy};
use crate::store::Sweep;
use crate::{Error, defaults};

/// Looks, again and again until stopped, for rows whose wake-up did not come, whose lease has ended, or whose history is
/// over, and for what is due soon. It needs no backend: with all of them away tasks still run, each up to one pause late.
pub(crate) async fn sweep(engine: Arc<Engine>) {
    let clock = &engine.kernel.clock;
    // What is due soon is not known yet.
    let mut pause = Duration::ZERO;
    // Several workers started together should not go on sweeping together.
    let millis = u64::try_from(engine.sweep_every.as_millis()).unwrap_or(u64::MAX);
    let mut spread = Some(Duration::from_millis(clock.random_below(millis)));
    let mut until_purge = 0_u32;
    loop {
        let notified = async {
            let _listening = engine.kernel.listening.lock().await;
            clock.sleep(TOLD_PAUSE).await;
            engine.kernel.store.notified().await;
        };
        let is_told = tokio::select! {
            biased;
            () = engine.stop.begun() => return,
            () = clock.sleep(pause) => false,
            // Another process has scheduled what is due soon, and its wake-ups may be out of reach.
            () = notified => true,
        };
        pause = spread.take().unwrap_or(engine.sweep_every);
        engine.kernel.failures.tell_left_out(clock.instant());
        match sweep_once(&engine).await {
            Ok(next) => pause = pause.min(next),
            Err(error) => {
                if engine.kernel.router.look_ahead().is_some() {
                    pause = pause.min(LookAhead::AGAIN);
                }
                warn!(
                    %error,
                    "the sweep failed, so lost wake-ups and ended leases are noticed later; it is repeated: see \
                     that the store is up"
                );
            }
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
            // There is more to remove: goes on at once, but after one more sweep, as overdue tasks come first.
            Ok(full) if full => pause = Duration::ZERO,
            Ok(_) => until_purge = PURGE_EVERY,
            Err(error) => {
                until_purge = PURGE_EVERY;
                warn!(%error, "old history could not be removed and takes room until it is; it is tried again");
            }
        }
    }
}

/// The least pause before a sweep because of what another process says, however much it says.
const TOLD_PAUSE: Duration = Duration::from_millis(20);

/// How often the store is asked for its time while a sweep hangs.
const HEAR_EVERY: Duration = Duration::from_secs(1);

/// Sweeps between two removals of history: one in half a minute, by default.
const PURGE_EVERY: u32 = 60;

/// Says when to sweep again at the latest.
async fn sweep_once(engine: &Arc<Engine>) -> Result<Duration, Error> {
    let kernel = &engine.kernel;
    if engine.is_unsure(&engine.now()) {
        // Claims of its own that it may still have are kept, rather than ended and taken again.
        renewing::renew(engine).await;
    }
    let look_ahead = kernel.router.look_ahead();
    let sweep = Sweep {
        limit: defaults::SWEEP_LIMIT,
        retake: defaults::RETAKE,
        ahead: look_ahead.map(|_| LookAhead::WANTED),
    };
    // Half, so that wake-ups that arrive meanwhile find room too.
    let reserved = engine.reserve(|queue| queue.room().div_ceil(2));
    let asked = kernel.clock.moment();
    let looked = tokio::select! {
        biased;
        looked = kernel.store.sweep(&reserved.claim, &sweep) => looked?,
        never = hear(engine) => match never {},
    };
    let heard = kernel.time.heard(&asked, looked);
    let mut next = Duration::MAX;
    if let Some(look_ahead) = look_ahead {
        next = look_ahead.take(asked.instant(), &heard, &heard.found.ahead);
    }
    let taken = heard.found.claimed.len() + heard.found.early.len();
    for task in &heard.found.claimed {
        // Where one was overdue there may be many: they need not wait for one sweep after the other.
        if let Some(queue) = engine.queues.get(&task.kind) {
            queue.set_backlog(true);
        }
    }
    let left = act(engine, heard, asked, reserved, WokenBy::Sweep).await?;
    engine.room.notify_one();
    if taken - left >= defaults::SWEEP_LIMIT {
        // There is more, and a place for it.
        next = Duration::ZERO;
    }
    Ok(next)
}

/// Hears of the store's time as long as a sweep hangs: by it leases end, and what is claimed and waits may not start.
async fn hear(engine: &Engine) -> Infallible {
    let kernel = &engine.kernel;
    loop {
        kernel.clock.sleep(HEAR_EVERY).await;
        // If this fails as well, claims end by this process's own clock.
        let _ = kernel.time.ask(&*kernel.store).await;
    }
}

/// Says whether there is more to remove right away.
async fn purge(engine: &Engine) -> Result<bool, Error> {
    let purged = engine.kernel.store.purge(defaults::BATCH).await?;
    let purged = usize::try_from(purged).unwrap_or(usize::MAX);
    engine.kernel.counters.purged.add(purged);
    Ok(purged >= defaults::BATCH)
}
