//! Pauses and resumes kinds, like an operator who reaches the store whatever happens to the processes.

use std::sync::Arc;
use std::time::Duration;

use delayline::Scheduler;

use crate::gate::{Gate, GatedStore, Hearer};
use crate::ledger::Pausing;
use crate::plan::{KINDS, StoreFaults};
use crate::world::World;

/// The longest pause, and the longest time between two, in ms.
const LONGEST: u64 = 10_000;

/// An operator, who has a scheduler and no worker.
pub(crate) struct Operator {
    world: Arc<World>,
    scheduler: Scheduler,
}

impl Operator {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let (clock, ground) = (world.clock.clone(), Arc::clone(&world.ground));
        let gate = Gate::new(0, clock, ground, u64::MAX, StoreFaults::default());
        let store = GatedStore(Arc::new(gate), Hearer::Other);
        let builder = Scheduler::builder(Arc::new(store)).clock(world.clock.skewed(0));
        Self {
            world: Arc::clone(world),
            scheduler: builder.build().unwrap(),
        }
    }

    /// Pauses one kind after the other, and resumes most of them.
    pub(crate) async fn operate(&self) {
        let (clock, ledger) = (&self.world.clock, &self.world.ledger);
        let span = |most| Duration::from_millis(clock.random_below(most));
        for _ in 0..self.world.plan.pauses {
            clock.sleep(span(LONGEST)).await;
            let kind = KINDS[clock.random_below(KINDS.len() as u64) as usize];
            // Where the store's clock is stepped, the ledger cannot tell when a time comes.
            let ends_by_itself = self.world.plan.steps == 0 && clock.random_below(3) == 0;
            let length = ends_by_itself.then(|| span(LONGEST) + Duration::from_millis(1));
            let until = length.map(|length| self.world.ground.clock.now().after(length));
            let pausing = ledger.pausing(kind, length);
            self.pause(kind, until, pausing).await;
            clock.sleep(span(LONGEST)).await;
            if clock.random_below(4) > 0 {
                self.resume(kind).await;
            }
        }
    }

    async fn pause(&self, kind: &str, until: Option<delayline::Timestamp>, pausing: Pausing) {
        // Its time may have come before the store was asked.
        match self.scheduler.pause(kind, until, "by chance").await {
            Ok(_) => self.world.ledger.paused(pausing),
            Err(error) => assert!(error.is_invalid(), "{error}"),
        }
    }

    async fn resume(&self, kind: &str) {
        self.world.ledger.resuming(kind);
        self.scheduler.resume(kind).await.unwrap();
        self.world.ledger.resumed(kind);
    }

    pub(crate) async fn resume_all(&self) {
        for kind in KINDS {
            self.resume(kind).await;
        }
    }
}
