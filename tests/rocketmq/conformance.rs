//! The contract of `Backend`.

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

backend_conformance!(rocketmq, Place::new());
