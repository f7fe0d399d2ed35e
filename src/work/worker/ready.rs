//! There is room again: due tasks that waited for it are claimed.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::arrivals::accept;
use super::engine::Engine;
use super::kind_queue::KindQueue;
use super::pausing;
use super::stop::Stage;
use crate::backend::WokenBy;
use crate::defaults;

/// Claims due tasks for queues that have room and a backlog, in batches, until stopped. The rows are the ready queue.
pub(crate) async fn claim_for_room(engine: Arc<Engine>) {
    let kernel = &engine.kernel;
    loop {
        let room = engine.room.notified();
        let mut wanting: Vec<_> = engine.queues.values().filter(|queue| wants_more(queue)).collect();
        if !engine.budget.has_room() {
            wanting.clear();
        }
        if wanting.is_empty() {
            tokio::select! {
                biased;
                () = engine.stop.begun() => return,
                () = room => continue,
            }
        }
        if engine.stop.stage() > Stage::Working {
            return;
        }
        for queue in &wanting {
            // Before the statement: a due task seen after it sets the mark again.
            queue.set_backlog(false);
        }
        let mut reserved = engine.reserve(|queue| {
            if wanting.iter().any(|wanting| wanting.kind == queue.kind) {
                queue.room().min(defaults::BATCH)
            } else {
                0
            }
        });
        reserved.claim.room.retain(|_, room| *room > 0);
        let asked = kernel.clock.moment();
        // By the time that these are claimed it is known whether they may start.
        pausing::ask_ahead(&engine, &asked);
        match kernel.store.ready(&reserved.claim).await {
            Ok(claimed) => {
                let heard = kernel.time.heard(&asked, claimed);
                let bytes: usize = heard.found.iter().map(|task| task.payload.len()).sum();
                let was_cut_off = bytes >= reserved.claim.bytes;
                for queue in &wanting {
                    let room = reserved.claim.room.get(&queue.kind).copied().unwrap_or(0);
                    let got = heard.found.iter().filter(|task| task.kind == queue.kind).count();
                    if got >= room || was_cut_off {
                        queue.set_backlog(true);
                    }
                }
                accept(&engine, heard, asked, reserved, WokenBy::Room);
            }
            Err(error) => {
                warn!(
                    %error,
                    "due tasks could not be claimed and are late until they are; it is tried again: see that the \
                     store is up"
                );
                for queue in &wanting {
                    queue.set_backlog(true);
                }
                drop(reserved);
                kernel.clock.sleep(CLAIM_AGAIN).await;
            }
        }
    }
}

/// How long to wait for a store that failed.
const CLAIM_AGAIN: Duration = Duration::from_millis(500);

/// Whether due tasks may be waiting for this queue, and enough room has come together to claim a batch of them.
fn wants_more(queue: &KindQueue) -> bool {
    queue.has_backlog() && queue.room() >= (queue.policy.prefetch / 2).max(1)
}
