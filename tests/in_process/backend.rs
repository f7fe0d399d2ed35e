//! The contract of `Backend`, tried on every implementation that needs no server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::{Backend, LevelsBackend, WheelBackend};
use delayline::backend_conformance;
use delayline::clock::Clock;
use delayline::delay::LevelTable;
use delayline::testing::backend::BackendFixture;

struct Wheel;

#[async_trait]
impl BackendFixture for Wheel {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(WheelBackend::with_clock(Clock::simulated(1)))
    }

    fn shortest_delay(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn earliness(&self) -> Duration {
        Duration::ZERO
    }
}

struct Levels;

#[async_trait]
impl BackendFixture for Levels {
    async fn open(&self) -> Arc<dyn Backend> {
        let table = LevelTable::default();
        Arc::new(LevelsBackend::with_clock(table, Clock::simulated(1)))
    }

    fn shortest_delay(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn earliness(&self) -> Duration {
        Duration::ZERO
    }

    fn forgets_what_is_removed(&self) -> bool {
        false
    }
}

backend_conformance!(wheel, Wheel, start_paused = true);
backend_conformance!(
    wheel_in_real_time,
    Wheel,
    flavor = "multi_thread",
    worker_threads = 2
);
backend_conformance!(levels, Levels, start_paused = true);
