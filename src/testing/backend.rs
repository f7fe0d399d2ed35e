//! Checks what every [`Backend`] must do: one function per case, and
//! [`backend_conformance!`](crate::backend_conformance) to make a named test of each.
//!
//! A case panics where the backend fails it. How late anything comes is never judged, and a case waits long for what
//! must come, so that none depends on the speed of the machine. Under tokio's paused clock the waiting is free; a
//! backend on a real server takes one or two of its shortest delays per case.

mod arrivals;
mod basics;
mod ending;
mod receivers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::arrivals::{
    a_batch_of_a_thousand_arrives_completely, a_delay_of_zero_arrives, a_long_delay_is_held,
    an_earlier_wake_up_overtakes_a_later_one, at_most_max_are_received, one_sent_twice_arrives_once_or_twice,
    two_versions_of_an_id_are_two_wake_ups, what_is_sent_arrives_in_its_time, widest_contents_arrive_intact,
};
pub use self::basics::{
    a_removed_wake_up_is_forgotten, empty_batches_are_fine, is_healthy_while_open, is_named,
    removing_what_is_not_there_is_fine,
};
pub use self::ending::{close_ends_a_waiting_receive, closing_again_does_nothing, nothing_works_after_close};
pub use self::receivers::{
    a_dropped_receive_loses_nothing, an_acknowledged_one_does_not_come_again,
    an_unacknowledged_one_comes_again, receive_waits_for_what_is_sent_meanwhile,
    two_processes_share_the_wake_ups, two_receivers_share_the_wake_ups,
};
use crate::backend::{Backend, Departure, Reach, Wake};
use crate::{Kind, TaskId};

/// How long a case waits for what must come. Only a broken backend takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

/// Makes the backends for the cases, and says what to expect of them.
#[async_trait]
pub trait BackendFixture: Send + Sync {
    /// Opens an empty backend, shared with no other test. Called once per case.
    async fn open(&self) -> Arc<dyn Backend>;

    /// Opens the backend of [`open`](Self::open) again, as a second process would; none if processes cannot share it.
    async fn open_again(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Returns a delay to test with: short, but one that it can hold. Cases wait twice this for what must not come.
    fn shortest_delay(&self) -> Duration;

    /// Returns how much before its delay a wake-up may arrive.
    fn earliness(&self) -> Duration {
        Duration::from_millis(10)
    }

    /// Returns after what time an unacknowledged wake-up comes again; none: never.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Says whether a removed wake-up does not arrive; removing is a hint.
    fn forgets_what_is_removed(&self) -> bool {
        true
    }

    /// Says whether a wake-up that is acknowledged at once never goes to another receiver. A broker may give it to two
    /// while receivers come and go.
    fn gives_each_to_one_receiver(&self) -> bool {
        true
    }
}

/// Makes a named test of each case of [`testing::backend`](crate::testing::backend), in a module `$name`.
///
/// The fixture is an expression of type [`BackendFixture`](crate::testing::backend::BackendFixture), evaluated in each
/// test. Arguments after it go to `#[tokio::test(…)]`: `start_paused = true` for a backend in this process, which then
/// uses tokio's time. A case for a feature that the fixture says the backend lacks, such as leases, passes and tests
/// nothing.
///
/// ```toml
/// [dev-dependencies]
/// async-trait = "0.1"
/// delayline = { …, features = ["testing"] }
/// tokio = { version = "1", features = ["macros", "rt-multi-thread", "test-util"] }
/// ```
///
/// ```text
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use delayline::backend::{Backend, WheelBackend};
/// use delayline::backend_conformance;
/// use delayline::testing::backend::BackendFixture;
///
/// struct Wheel;
///
/// #[async_trait::async_trait]
/// impl BackendFixture for Wheel {
///     async fn open(&self) -> Arc<dyn Backend> {
///         Arc::new(WheelBackend::new())
///     }
///
///     fn shortest_delay(&self) -> Duration {
///         Duration::from_millis(50)
///     }
/// }
///
/// backend_conformance!(wheel, Wheel, start_paused = true);
/// ```
#[macro_export]
macro_rules! backend_conformance {
    ($name:ident, $fixture:expr $(, $($tokio:tt)*)?) => {
        mod $name {
            use super::*;

            $crate::backend_conformance! {
                @each [$fixture] [$($($tokio)*)?]
                what_is_sent_arrives_in_its_time
                widest_contents_arrive_intact
                a_delay_of_zero_arrives
                a_batch_of_a_thousand_arrives_completely
                at_most_max_are_received
                two_versions_of_an_id_are_two_wake_ups
                one_sent_twice_arrives_once_or_twice
                an_earlier_wake_up_overtakes_a_later_one
                a_long_delay_is_held
                receive_waits_for_what_is_sent_meanwhile
                two_receivers_share_the_wake_ups
                two_processes_share_the_wake_ups
                a_dropped_receive_loses_nothing
                an_unacknowledged_one_comes_again
                an_acknowledged_one_does_not_come_again
                is_named
                is_healthy_while_open
                empty_batches_are_fine
                a_removed_wake_up_is_forgotten
                removing_what_is_not_there_is_fine
                close_ends_a_waiting_receive
                nothing_works_after_close
                closing_again_does_nothing
            }
        }
    };
    (@each $fixture:tt $tokio:tt $($case:ident)*) => {
        $($crate::backend_conformance!(@one $fixture $tokio $case);)*
    };
    (@one [$fixture:expr] [$($tokio:tt)*] $case:ident) => {
        #[tokio::test($($tokio)*)]
        async fn $case() {
            $crate::testing::backend::$case(&$fixture).await;
        }
    };
}

/// A backend in a case.
struct Case<'a> {
    fixture: &'a dyn BackendFixture,
    backend: Arc<dyn Backend>,
}

impl<'a> Case<'a> {
    async fn open(fixture: &'a dyn BackendFixture) -> Self {
        let backend = fixture.open().await;
        Self { fixture, backend }
    }

    /// Opens a backend that can hold any delay; none otherwise.
    async fn open_any(fixture: &'a dyn BackendFixture) -> Option<(Self, Duration)> {
        let case = Self::open(fixture).await;
        match case.backend.delays().reach {
            Reach::Any { max } => Some((case, max)),
            Reach::Levels(_) => {
                case.close().await;
                None
            }
        }
    }

    fn delay(&self) -> Duration {
        self.fixture.shortest_delay()
    }

    /// Sends wake-ups with the shortest delay.
    async fn send(&self, wakes: &[Wake]) {
        self.send_in(wakes, self.delay()).await;
    }

    async fn send_in(&self, wakes: &[Wake], delay: Duration) {
        let batch = wakes.iter().map(|wake| departure(wake, delay));
        self.send_all(batch.collect()).await;
    }

    async fn send_all(&self, mut batch: Vec<Departure>) {
        let sending = async {
            // A busy machine is no defect of the backend.
            while let Err(unsent) = self.backend.send(&batch).await {
                assert!(unsent.cause.is_transient(), "sending works: {unsent}");
                batch = unsent.failed.iter().map(|&place| batch[place].clone()).collect();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        patiently(sending).await;
    }

    /// Receives and acknowledges once.
    async fn receive(&self, max: usize) -> Vec<Wake> {
        let arrivals = patiently(self.backend.receive(max))
            .await
            .expect("receiving works");
        assert!(!arrivals.is_empty(), "receive waits until something has arrived");
        assert!(
            arrivals.len() <= max,
            "{} arrived of {max} at most",
            arrivals.len()
        );
        let wakes = arrivals.iter().map(|arrival| arrival.wake.clone()).collect();
        self.backend.acknowledge(arrivals).await;
        wakes
    }

    /// Receives until each of `expected` has come, except those in `already`; returns all that have come: more, if some
    /// came twice.
    async fn receive_all(&self, expected: &[Wake], max: usize, already: &[Wake]) -> Vec<Wake> {
        let mut missing: BTreeSet<_> = expected.iter().cloned().collect();
        missing.retain(|wake| !already.contains(wake));
        let mut received = Vec::new();
        while !missing.is_empty() {
            let wakes = self.receive(max).await;
            for wake in &wakes {
                missing.remove(wake);
            }
            received.extend(wakes);
        }
        received
    }

    /// Returns what comes within two shortest delays after `time`: a wrong wake-up is there by then.
    async fn what_still_comes(&self, time: Duration) -> Vec<Wake> {
        let mut received = Vec::new();
        let everything = async {
            loop {
                received.extend(self.receive(100).await);
            }
        };
        let _ends: Result<(), _> = tokio::time::timeout(time + 2 * self.delay(), everything).await;
        received
    }

    async fn close(&self) {
        self.backend.close().await.expect("closing works");
    }
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("it comes within a minute")
}

fn departure(wake: &Wake, delay: Duration) -> Departure {
    Departure {
        wake: wake.clone(),
        delay,
    }
}

/// Makes a unique wake-up.
fn wake() -> Wake {
    Wake {
        id: TaskId::from(uuid::Uuid::from_u128(fastrand::u128(..))),
        kind: Kind::from("order.cancel"),
        version: 1,
    }
}

fn wakes(count: usize) -> Vec<Wake> {
    (0..count).map(|_| wake()).collect()
}
