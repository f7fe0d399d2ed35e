//! The backend of the example `own_backend`, held to the contract as any other.

#[path = "../../examples/own_backend/heap.rs"]
mod heap_backend;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::Backend;
use delayline::backend_conformance;
use delayline::testing::backend::BackendFixture;

use self::heap_backend::HeapBackend;

struct Heap;

#[async_trait]
impl BackendFixture for Heap {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(HeapBackend::new())
    }

    fn shortest_delay(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn earliness(&self) -> Duration {
        Duration::ZERO
    }
}

backend_conformance!(heap, Heap, start_paused = true);
