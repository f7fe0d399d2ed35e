//! Figures for a recorder: the only place that knows instruments by their names.
//!
//! They go to the recorder that the process has installed for the crate `metrics`. Where it has none, the figures of a task
//! cost half a microsecond.

#[cfg(feature = "rocketmq")]
mod brokers;
mod given;
pub(crate) mod instruments;
mod kinds;
#[cfg(feature = "rocketmq")]
mod level_samples;
#[cfg(all(test, feature = "rocketmq"))]
mod recorded;

use std::time::Duration;

use metrics::{SharedString, counter, histogram};
use tokio::sync::Mutex;
use tokio::time::Instant;

#[cfg(feature = "rocketmq")]
pub(crate) use self::brokers::{level_is_stuck, sent_to_broker};
use self::given::Given;
use self::kinds::Kinds;
pub(crate) use self::kinds::OTHER;
#[cfg(feature = "rocketmq")]
pub(crate) use self::level_samples::LevelSamples;
#[cfg(all(test, feature = "rocketmq"))]
pub(crate) use self::recorded::recorded;
use crate::clock::Clock;
use crate::store::Ending;
use crate::task::claim_id::ClaimId;
use crate::{Kind, defaults};

/// What brings a task that is claimed without a worker.
pub(crate) const CLAIM: &str = "claim";
/// What came of an attempt whose claim was lost.
pub(crate) const LOST: &str = "lost";
/// What a verb answers that could not be done, or of which that is not known.
pub(crate) const ERROR: &str = "error";

/// What came of an attempt, by how its claim ended.
pub(crate) const fn outcome(ending: &Ending) -> &'static str {
    match ending {
        Ending::Done => "done",
        Ending::Dead { .. } => "dead",
        Ending::Retry { .. } => "retry",
        Ending::Snooze { .. } => "snooze",
        Ending::Again { .. } => "again",
        Ending::Release => "released",
        Ending::Moved { .. } => "moved",
        Ending::Cancelled => "cancelled",
    }
}

/// Records what has to do with kinds, of one scheduler and the workers beside it.
#[derive(Debug)]
pub(crate) struct Metrics {
    kinds: Kinds,
    given: Given,
    /// Until when the store is not asked for what only it knows.
    pub(crate) rests_until: Mutex<Option<Instant>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        instruments::describe();
        Self {
            kinds: Kinds::new(defaults::METRIC_KINDS),
            given: Given::default(),
            rests_until: Mutex::default(),
        }
    }

    /// A kind is handled here, so it is told apart however many others come.
    pub(crate) fn handled(&self, kind: &Kind) {
        self.name(kind);
    }

    /// A task was started, brought by this, and so late.
    pub(crate) fn started(&self, kind: &Kind, woken_by: &'static str, lateness: Duration) {
        histogram!(
            instruments::TASK_LATENESS,
            "kind" => self.name(kind),
            "woken_by" => woken_by,
        )
        .record(lateness);
    }

    /// A handler has come to an end.
    pub(crate) fn processed(&self, kind: &Kind, outcome: &'static str, since: Stopwatch, clock: &Clock) {
        processed(self.name(kind), outcome, since.took(clock));
    }

    /// A claim has ended.
    pub(crate) fn attempted(&self, kind: &Kind, outcome: &'static str) {
        attempted(self.name(kind), outcome, 1);
    }

    /// A claim was given to a claimant, that runs its task elsewhere.
    pub(crate) fn given(&self, claim: ClaimId, kind: &Kind, clock: &Clock) {
        self.given.add(claim, kind.clone(), Stopwatch::start(clock));
    }

    /// Such a claim has ended; of which kind it was, where that is known.
    pub(crate) fn given_ended(
        &self,
        claim: ClaimId,
        kind: Option<&Kind>,
        outcome: &'static str,
        clock: &Clock,
    ) {
        let given = self.given.take(claim);
        let kind = kind.or(given.as_ref().map(|(kind, _)| kind));
        let name = kind.map_or(OTHER, |kind| self.name(kind));
        if let Some((_, since)) = given {
            processed(name.clone(), outcome, since.took(clock));
        }
        attempted(name, outcome, 1);
    }

    /// By which a kind is recorded.
    pub(crate) fn name(&self, kind: &Kind) -> SharedString {
        // For Prometheus a series whose first value is 1 has never increased: the first dead task would be no alarm.
        self.kinds.name(kind, |name| attempted(name.clone(), "dead", 0))
    }

    /// The kinds that are told apart.
    pub(crate) fn own_kinds(&self) -> Vec<Kind> {
        self.kinds.own()
    }
}

fn processed(kind: SharedString, outcome: &'static str, took: Duration) {
    histogram!(
        instruments::PROCESS_DURATION,
        "messaging.system" => "delayline",
        "messaging.operation.name" => "process",
        "kind" => kind,
        "outcome" => outcome,
    )
    .record(took);
}

fn attempted(kind: SharedString, outcome: &'static str, count: u64) {
    counter!(instruments::ATTEMPTS, "kind" => kind, "outcome" => outcome).increment(count);
}

/// A caller's verb was answered so, as many times.
pub(crate) fn verb(verb: &'static str, answer: &'static str, count: usize) {
    if count > 0 {
        counter!(instruments::VERBS, "verb" => verb, "answer" => answer).increment(count as u64);
    }
}

/// This became of so many wake-ups on a route.
pub(crate) fn wakeups(route: &'static str, result: &'static str, count: usize) {
    if count > 0 {
        counter!(instruments::WAKEUPS, "route" => route, "result" => result).increment(count as u64);
    }
}

/// When something began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start(clock: &Clock) -> Self {
        Self(clock.instant())
    }

    /// Of what goes on in real time.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    #[cfg(feature = "rocketmq")]
    fn began(self) -> Instant {
        self.0
    }

    fn took(self, clock: &Clock) -> Duration {
        clock.instant().saturating_duration_since(self.0)
    }
}
