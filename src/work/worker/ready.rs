//! There is room again: due tasks that waited for it are claimed.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::arrivals::accept;
use super::engine::Engine;
use super::lane::Lane;
use super::pausing;
use super::stop::Stage;
use crate::backend::WokenBy;
use crate::defaults;

/// Claims due tasks for lanes that have room and a backlog, in batches, until stopped. The rows are the ready queue.
pub(crate) async fn claim_for_room(engine: Arc<Engine>) {
    let kernel = &engine.kernel;
    loop {
        let room = engine.room.notified();
        let mut hungry: Vec<_> = engine.lanes.values().filter(|lane| is_hungry(lane)).collect();
        if !engine.budget.has_room() {
            hungry.clear();
        }
        if hungry.is_empty() {
            tokio::select! {
                biased;
                () = engine.stop.begun() => return,
                () = room => continue,
            }
        }
        if engine.stop.stage() > Stage::Working {
            return;
        }
        for lane in &hungry {
            // Before the statement: a due task seen after it sets the mark again.
            lane.set_backlog(false);
        }
        let mut reserved = engine.reserve(|lane| {
            if hungry.iter().any(|hungry| hungry.kind == lane.kind) {
                lane.room().min(defaults::BATCH)
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
                for lane in &hungry {
                    let room = reserved.claim.room.get(&lane.kind).copied().unwrap_or(0);
                    let got = heard.found.iter().filter(|task| task.kind == lane.kind).count();
                    if got >= room || was_cut_off {
                        lane.set_backlog(true);
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
                for lane in &hungry {
                    lane.set_backlog(true);
                }
                drop(reserved);
                kernel.clock.sleep(CLAIM_AGAIN).await;
            }
        }
    }
}

/// How long to wait for a store that failed.
const CLAIM_AGAIN: Duration = Duration::from_millis(500);

/// Whether due tasks may be waiting for this lane, and enough room has come together to claim a batch of them.
fn is_hungry(lane: &Lane) -> bool {
    lane.has_backlog() && lane.room() >= (lane.policy.prefetch / 2).max(1)
}
