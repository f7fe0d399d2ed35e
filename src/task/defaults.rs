//! Every default of the crate, in one place.

use std::time::Duration;

/// A task that is due sooner goes to the precise backend.
pub const HANDOFF: Duration = Duration::from_secs(1);
/// By how much a level may overshoot the due time.
pub const TOLERANCE: Duration = Duration::from_millis(200);
/// A task that is due later goes to the precise backend.
pub const HORIZON: Duration = Duration::from_secs(24 * 3_600);

/// How late a level usually is at the most: RocketMQ polls each level every 100 ms, and p99 of a level was measured
/// at 101 ms on 5.3.3.
pub const LEVELS_LATENESS: Duration = Duration::from_millis(200);
/// How late a timer message usually is at the most: RocketMQ keeps timers by whole seconds, and of some thousands the
/// latest was measured at 1,119 ms on 5.3.3.
pub const TIMERS_LATENESS: Duration = Duration::from_millis(1_200);
/// The longest that a broker holds a timer message by default: its setting `timerMaxDelaySec`, the same in 5.0.0 and
/// 5.3.3 (`MessageStoreConfig.java`).
pub const TIMERS_LONGEST: Duration = Duration::from_secs(259_200);
/// How late a precise backend (table, wheel, Redis) usually is at the most.
pub const PRECISE_LATENESS: Duration = Duration::from_millis(50);
/// How far ahead a worker reads rows into its wheel, where the store itself is the precise backend.
pub const LOOK_AHEAD: Duration = Duration::from_secs(2);

/// How often a worker sweeps.
pub const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// How many rows of each kind and state one sweep takes.
pub const SWEEP_LIMIT: usize = 500;
/// For how long a sweep that found a row before its time keeps other sweeps from it.
pub const RETAKE: Duration = Duration::from_secs(1);
/// For how long finished history is kept.
pub const HISTORY: Duration = Duration::from_secs(7 * 24 * 3_600);

/// After how long an unanswered call of a store has failed.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many bytes a payload may have.
pub const PAYLOAD_LIMIT: usize = 1 << 20;
/// How many bytes of payloads a worker holds at the most.
pub const WORKER_BYTES: usize = 64 << 20;
/// How many bytes of payloads and headers go into one call of a store: each row may fit into what a server takes at once
/// (MariaDB: 16 MB, MySQL before 8: 4 MB) where all of them do not. A larger row goes by itself.
pub const BATCH_BYTES: usize = 1 << 20;

/// How many bytes of payloads one take of claims has at the most.
pub const CLAIM_BYTES: usize = 16 << 20;
/// How many bytes of payloads are held together by all claims that were taken through one handle.
pub const CLAIMS_BYTES: usize = 64 << 20;
/// How often the waiting requests for claims of the same kinds ask the store, together: a change that only another
/// process notices is found that late at the most.
pub const CLAIM_EVERY: Duration = Duration::from_millis(250);

/// How soon all workers over a store know that a kind was paused or resumed. A worker that could not ask the store for
/// so long starts nothing.
pub const PAUSE_SEEN: Duration = Duration::from_secs(1);

/// For how long a claim holds unless it is renewed.
pub const LEASE: Duration = Duration::from_secs(30);
/// How often a lease is renewed before it ends: every 10 s by default.
pub const RENEWALS: u32 = 3;

/// How many handlers of a kind run at once in one worker.
pub const CONCURRENCY: usize = 64;
/// How many more tasks of a kind a worker claims, so that the next one starts as soon as a handler finishes.
pub const PREFETCH: usize = 448;

/// After how many attempts a task is given up.
pub const MAX_ATTEMPTS: u32 = 25;
/// After how many claims in a row that ended because their worker went away a task is given up.
pub const MAX_STALLS: u32 = 100;
/// The backoff before the second attempt; it doubles with every further one.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The longest backoff.
pub const BACKOFF_MAX: Duration = Duration::from_secs(3_600);
/// For how long a handler may run.
pub const EXECUTION_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest time between two wake-ups of a kind with a check.
pub const CHECK_EVERY: Duration = Duration::from_secs(300);
/// After how long a check counts as failed, unless a third of the lease is shorter.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How soon a failed check is run again.
pub const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// How many tasks of a kind wait to be checked that are not due yet; more are left to the sweep.
pub const UNASKED: usize = 10_000;

/// How many tasks of a kind a forecast counts at the most.
pub const FORECAST_LIMIT: usize = 100_000;

/// How many kinds have metrics of their own, those first that are handled here; all others share one name, `other`.
pub const METRIC_KINDS: usize = 100;
/// How often metrics ask the store for what only it knows, at the most: a little more often than most collectors ask,
/// and once for several that ask at the same time.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// How many wake-ups wait to be sent before callers wait for them.
pub const SEND_QUEUE: usize = 10_000;
/// For how long a caller waits for a place among them; then the wake-up is left to the sweep.
pub const SEND_QUEUE_WAIT: Duration = Duration::from_millis(50);
/// How many events are kept for slow subscribers.
pub const EVENTS: usize = 1_024;
/// How many rows, wake-ups or settlements go into one call of a store or a backend.
pub const BATCH: usize = 500;
/// How many failed attempts of a kind are logged one by one within [`LOGGED_FAILURES_WITHIN`]; of more, how many there were.
pub const LOGGED_FAILURES: usize = 10;
/// The time within which [`LOGGED_FAILURES`] are counted.
pub const LOGGED_FAILURES_WITHIN: Duration = Duration::from_secs(10);
/// After how long a call to a backend counts as failed.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// After how many calls in a row that took nothing a carrier, or a broker, counts as unhealthy.
pub const UNWELL_AFTER: u32 = 3;
/// How often an unhealthy backend is checked.
pub const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// For how long a stopping worker waits for its running handlers.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);
