//! The contract of `Backend`.

use async_trait::async_trait;
use delayline::backend_conformance;
use delayline::testing::backend::BackendFixture;

use super::*;

#[derive(Debug)]
struct Redis {
    server: RedisServer,
    slots: u16,
}

impl Redis {
    fn start() -> Self {
        Self::in_slots(1)
    }

    fn in_slots(slots: u16) -> Self {
        let server = RedisServer::start();
        Self { server, slots }
    }

    fn connect(&self) -> Arc<dyn Backend> {
        let backend = backend(&self.server).slots(self.slots).unwrap();
        Arc::new(backend.lease(LEASE).unwrap())
    }
}

/// Long enough for a slow machine to acknowledge in, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

#[async_trait]
impl BackendFixture for Redis {
    async fn open(&self) -> Arc<dyn Backend> {
        self.connect()
    }

    async fn open_again(&self) -> Option<Arc<dyn Backend>> {
        Some(self.connect())
    }

    fn shortest_delay(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }
}

backend_conformance!(redis, Redis::start());
backend_conformance!(redis_in_slots, Redis::in_slots(16));
backend_conformance!(
    redis_in_threads,
    Redis::start(),
    flavor = "multi_thread",
    worker_threads = 2
);
