//! What a scheduler and the workers beside it share.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::Kind;
use crate::background_sender::BackgroundSender;
use crate::claims::Shared;
use crate::clock::{Clock, Spawned};
use crate::events::Teller;
use crate::expected::Check;
use crate::inserts::Inserts;
use crate::pauses::Pauses;
use crate::receipt::Follow;
use crate::router::{DueWake, Router};
use crate::stats::Counters;
use crate::store::Store;
use crate::store_time::StoreTime;

/// The store, the router, the clocks and the queues that a scheduler and its workers go by.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) router: Arc<Router>,
    /// What tasks of a kind follow.
    pub(crate) checks: BTreeMap<Kind, Check>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    /// Of its workers one at a time listens to what other processes say, and looks on behalf of all.
    pub(crate) listening: Mutex<()>,
    pub(crate) inserts: Inserts,
    pub(crate) sender: BackgroundSender,
    /// Of claims that are taken without a worker.
    pub(crate) claims: Shared,
    pub(crate) pauses: Pauses,
    pub(crate) events: Teller,
    pub(crate) payload_limit: usize,
    /// Ends with the scheduler.
    pub(crate) _watching: Spawned,
}

impl Kernel {
    /// Does what follows from a verb, behind the caller's back.
    pub(crate) async fn follow(&self, Follow { due_wakes, obsolete }: Follow) {
        self.sender.remove(obsolete);
        self.send_soon(due_wakes).await;
    }

    /// Sends wake-ups behind the caller's back; who waits here for what is due now need not wait for them.
    pub(crate) async fn send_soon(&self, due_wakes: Vec<DueWake>) {
        let now = self.clock.instant();
        let due = due_wakes.iter().filter(|due_wake| due_wake.due <= now);
        self.claims.waiting.tell(due.map(|due_wake| &due_wake.wake.kind));
        self.sender.send(due_wakes).await;
    }
}
