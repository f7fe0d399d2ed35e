//! Kinds that are paused: their tasks are neither claimed nor started.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::engine::Engine;
use super::lane::Settled;
use crate::clock::Moment;
use crate::defaults;
use crate::pauses::Age;

/// Whether what is known of pauses is new enough for a start. If not, the store is asked, and lanes look again.
pub(crate) fn may_start(engine: &Engine, now: &Moment) -> bool {
    let age = engine.kernel.pauses.age(now);
    if age > Age::Fresh {
        engine.pauses.notify_one();
    }
    age < Age::Old
}

/// Asks which kinds are paused when something is to start, and twice as often as it must be known while any is, until
/// stopped.
pub(crate) async fn watch(engine: Arc<Engine>, settle: mpsc::UnboundedSender<Settled>) {
    let kernel = &engine.kernel;
    loop {
        let again = async {
            if !kernel.pauses.is_any() {
                std::future::pending::<()>().await;
            }
            kernel.clock.sleep(defaults::PAUSE_SEEN / 2).await;
        };
        tokio::select! {
            biased;
            () = engine.stop.begun() => return,
            () = engine.pauses.notified() => {}
            () = again => {}
        }
        kernel.pauses.refresh(kernel).await;
        let now = kernel.time.now();
        for (kind, lane) in &engine.lanes {
            let paused = kernel.pauses.has(kind, now);
            if lane.set_paused(paused) {
                lane.set_backlog(true);
                engine.room.notify_one();
            }
            if paused {
                // Also what was claimed before this was known, and has come since.
                engine.release(lane, &settle);
            }
            lane.look_again();
        }
    }
}
