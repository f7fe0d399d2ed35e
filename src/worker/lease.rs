//! Keeps claims alive while their handlers run.

use std::sync::Arc;

use tracing::warn;

use super::engine::Engine;
use crate::defaults;
use crate::store::{Guarded, Renewal};

/// Renews the leases of all held claims, three times in each lease. Never ends.
pub(crate) async fn renew(engine: Arc<Engine>) {
    let parts = &engine.parts;
    loop {
        parts.clock.sleep(engine.lease / defaults::RENEWALS).await;
        for lane in engine.lanes.values() {
            let claims = lane.renewable(parts.clock.instant());
            for batch in claims.chunks(defaults::BATCH) {
                let asked = parts.clock.instant();
                let renewals = batch.iter().map(|&(id, version)| Renewal {
                    id,
                    version,
                    started: false,
                });
                match parts.store.renew(&Vec::from_iter(renewals), engine.lease).await {
                    Ok(renewed) => {
                        for (&(id, version), renewed) in batch.iter().zip(renewed) {
                            match renewed {
                                Guarded::Done => lane.renewed(id, version, asked + engine.lease),
                                // Two more tries until the lease ends.
                                Guarded::Blocked => {}
                                Guarded::Lost if lane.lost(id, version) => {
                                    parts.counters.lost_claims.add(1);
                                    engine.room.notify_one();
                                    warn!(%id, kind = %lane.kind, "a lease was lost; its handler is stopped");
                                }
                                Guarded::Lost => {}
                            }
                        }
                    }
                    // Two more tries until the leases end.
                    Err(error) => warn!(%error, claims = batch.len(), "leases were not renewed"),
                }
            }
        }
    }
}
