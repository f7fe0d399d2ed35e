//! Tests the contract of `Backend`.

use async_trait::async_trait;
use delayline::backend_conformance;
use delayline::testing::backend::BackendFixture;

use super::*;

#[async_trait]
impl BackendFixture for Place {
    async fn open(&self) -> Arc<dyn Backend> {
        self.connect().await
    }

    async fn open_again(&self) -> Option<Arc<dyn Backend>> {
        Some(self.connect().await)
    }

    fn shortest_delay(&self) -> Duration {
        ONE
    }

    fn forgets_what_is_removed(&self) -> bool {
        false
    }

    fn gives_each_to_one_receiver(&self) -> bool {
        // A queue moves to another consumer with what the first has not reported as consumed yet.
        false
    }
}

/// The same place, through timer messages.
struct ByTimers(Place);

#[async_trait]
impl BackendFixture for ByTimers {
    async fn open(&self) -> Arc<dyn Backend> {
        self.0.connect_timers().await
    }

    async fn open_again(&self) -> Option<Arc<dyn Backend>> {
        Some(self.0.connect_timers().await)
    }

    fn shortest_delay(&self) -> Duration {
        TWO
    }

    fn forgets_what_is_removed(&self) -> bool {
        self.0.forgets_what_is_removed()
    }

    fn gives_each_to_one_receiver(&self) -> bool {
        self.0.gives_each_to_one_receiver()
    }
}

backend_conformance!(rocketmq, Place::new());
backend_conformance!(rocketmq_timers, ByTimers(Place::new()));
