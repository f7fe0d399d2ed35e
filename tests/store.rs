//! Holds each store of this crate to the contract of `Store`. One line per store: its name and its fixture.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline::Clock;
use delayline::store::{MemoryStore, Store};
use delayline::testing::store::StoreFixture;
use delayline::testing::store_conformance;

store_conformance!(memory, Memory::new());

#[derive(Debug)]
struct Memory {
    clock: Clock,
}

impl Memory {
    fn new() -> Self {
        let clock = Clock::simulated(7);
        Self { clock }
    }
}

#[async_trait]
impl StoreFixture for Memory {
    async fn store(&self, history: Duration) -> Arc<dyn Store> {
        Arc::new(MemoryStore::with_clock(self.clock.clone()).keep_history(history))
    }

    async fn pass(&self, time: Duration) {
        let millis = time.as_millis().try_into().expect("cases wait for short");
        self.clock.step(millis);
    }
}
