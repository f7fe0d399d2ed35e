//! Kinds that are paused: their tasks are neither claimed nor started.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::engine::Engine;
use super::kind_queue::KindQueue;
use super::lease::Now;
use super::settle::Settled;
use crate::clock::Moment;
use crate::defaults;

/// Has the store asked if what is known of pauses is not fresh: something is about to be claimed, and it is to be known by
/// then whether it may start.
pub(crate) fn ask_ahead(engine: &Engine, now: &Moment) {
    if !engine.kernel.pauses.is_fresh(now) {
        engine.pauses.notify_one();
    }
}

/// Whether it is known that tasks of a queue may start. If it is not, or not for long, the store is asked, and queues look
/// again.
pub(crate) fn may_start(engine: &Engine, queue: &KindQueue, now: &Now) -> bool {
    let pauses = &engine.kernel.pauses;
    // Others in this process ask, too: the answer may not have come to this queue yet.
    if pauses.has(&queue.kind, &engine.kernel.time) != queue.is_paused() {
        engine.pauses.notify_one();
    }
    ask_ahead(engine, &now.moment);
    pauses.allow(&queue.kind, &now.moment, &engine.kernel.time)
}

/// Asks which kinds are paused when something is to start, and twice as often as it must be known while any is, until
/// stopped.
pub(crate) async fn watch(engine: Arc<Engine>, settle: mpsc::UnboundedSender<Settled>) {
    let kernel = &engine.kernel;
    loop {
        let again = async {
            if !kernel.pauses.is_any() && !engine.queues.values().any(|queue| queue.is_paused()) {
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
        let asked = kernel.pauses.refresh(kernel).await;
        for (kind, queue) in &engine.queues {
            let paused = kernel.pauses.has(kind, &kernel.time);
            if queue.set_paused(paused) {
                queue.set_backlog(true);
                engine.room.notify_one();
            }
            if paused {
                // Also what was claimed before this was known, and has come since.
                engine.release(queue, &settle);
            }
        }
        if asked.is_err() {
            tokio::select! {
                biased;
                () = engine.stop.begun() => return,
                () = kernel.clock.sleep(ASK_AGAIN) => {}
            }
        }
        for queue in engine.queues.values() {
            queue.look_again();
        }
    }
}

/// How soon a store is asked again that has not said which kinds are paused.
const ASK_AGAIN: Duration = Duration::from_millis(100);
