//! The contract of `Backend`.

use async_trait::async_trait;
use delayline::backend_conformance;
use delayline::testing::backend::BackendFixture;

use super::*;

struct Redis {
    server: RedisServer,
}

impl Redis {
    fn start() -> Self {
        let server = RedisServer::start();
        Self { server }
    }

    fn connect(&self) -> Arc<dyn Backend> {
        Arc::new(backend(&self.server).lease(LEASE).unwrap())
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
backend_conformance!(
    redis_in_threads,
    Redis::start(),
    flavor = "multi_thread",
    worker_threads = 2
);
