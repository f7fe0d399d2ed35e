//! Wake-ups arrive: the one look at the row, and what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::attempt::Attempt;
use super::engine::{Engine, Reserved};
use super::lease::Lease;
use super::pausing;
use crate::backend::{Arrival, Backend, Wake, WokenBy};
use crate::clock::Moment;
use crate::observe::metrics::wakeups;
use crate::schedule::notes::Way;
use crate::store::store_time::{ClockSample, Timed};
use crate::store::{Claim, Guarded, Pending, PollResult, Step};
use crate::task::due_wake::DueWake;
use crate::{Error, Kind, Task, TaskId, defaults};

/// How many receive from a backend at once: what arrives while the store is asked about others need not wait for that.
pub(crate) const RECEIVERS: usize = 2;

/// Receives from one backend until stopped.
pub(crate) async fn receive(engine: Arc<Engine>, woken_by: WokenBy, backend: Arc<dyn Backend>) {
    let clock = &engine.kernel.clock;
    loop {
        let received = tokio::select! {
            biased;
            () = engine.stop.begun() => return,
            received = backend.receive(defaults::BATCH) => received,
        };
        match received {
            Ok(arrivals) => {
                engine.kernel.counters.received.add(arrivals.len());
                look_with_patience(&engine, woken_by, &arrivals).await;
                // Also when the store could not be asked: the sweep finds their tasks, redelivery would not help.
                let acknowledged = backend.acknowledge(arrivals);
                if clock.timeout(ACKNOWLEDGE_TIMEOUT, acknowledged).await.is_none() {
                    warn!(
                        backend = backend.name(),
                        "wake-ups could not be acknowledged in time and may come again, which costs a look each \
                         and nothing else"
                    );
                }
            }
            Err(error) => {
                warn!(
                    backend = backend.name(), %error,
                    "wake-ups cannot be received, so their tasks wait for the sweep and are up to half a second late; \
                     it is tried again every second"
                );
                clock.sleep(RECEIVE_AGAIN).await;
            }
        }
    }
}

/// For how long a backend may take to be told what has been dealt with.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait before asking a backend again that said it cannot receive.
const RECEIVE_AGAIN: Duration = Duration::from_secs(1);

/// How long to wait for a store that failed, each time; short of RocketMQ's 10 s in all.
const LOOK_AGAIN: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
];

async fn look_with_patience(engine: &Engine, woken_by: WokenBy, arrivals: &[Arrival]) {
    // At most one wake-up per id; of several the newest, since an older version is past.
    let mut newest: BTreeMap<TaskId, &Wake> = BTreeMap::new();
    for Arrival { wake, .. } in arrivals {
        let kept = newest.entry(wake.id).or_insert(wake);
        if kept.version < wake.version {
            *kept = wake;
        }
    }
    let older = arrivals.len() - newest.len();
    engine.kernel.counters.stale.add(older);
    wakeups(woken_by.word(), "stale", older);
    let wakes: Vec<Wake> = newest.into_values().cloned().collect();
    let mut pauses = LOOK_AGAIN.into_iter();
    while let Err(error) = look(engine, woken_by, &wakes).await {
        let Some(pause) = pauses.next().filter(|_| error.is_transient()) else {
            warn!(
                %error, wakes = wakes.len(),
                "the store could not be asked about wake-ups that have come, so their tasks wait for the sweep; \
                 see that the store is up"
            );
            return;
        };
        engine.kernel.clock.sleep(pause).await;
    }
}

async fn look(engine: &Engine, woken_by: WokenBy, wakes: &[Wake]) -> Result<(), Error> {
    let mut wanted: BTreeMap<&Kind, usize> = BTreeMap::new();
    for wake in wakes {
        *wanted.entry(&wake.kind).or_default() += 1;
    }
    let reserved = engine.reserve(|queue| wanted.get(&queue.kind).copied().unwrap_or(0));
    let within;
    let wakes = if woken_by == WokenBy::Precise {
        let waiting;
        (within, waiting) = split_by_room(wakes, &reserved.claim);
        engine.waiting(&waiting);
        wakeups(woken_by.word(), "waiting", waiting.values().sum());
        &within
    } else {
        wakes
    };
    if wakes.is_empty() {
        return Ok(());
    }
    let asked = engine.kernel.clock.moment();
    // By the time that these are claimed it is known whether they may start.
    pausing::ask_ahead(engine, &asked);
    let polled = engine.kernel.store.arrive(wakes, &reserved.claim).await?;
    let heard = engine.kernel.time.heard(&asked, polled);
    act(engine, heard, asked, reserved, woken_by).await?;
    Ok(())
}

/// The wake-ups that there is room for, or no handler, and of the others how many there are of each kind.
///
/// Only of the precise backend, whose wake-ups nearly all come when their tasks are due: to look at more of them than can
/// be claimed costs the store, and those few that are not due yet are overdue soon, and found by the sweep.
fn split_by_room(wakes: &[Wake], claim: &Claim) -> (Vec<Wake>, BTreeMap<Kind, usize>) {
    let mut room = claim.room.clone();
    let mut waiting = BTreeMap::new();
    let mut within = wakes.to_vec();
    within.retain(|wake| match room.get_mut(&wake.kind) {
        Some(0) => {
            *waiting.entry(wake.kind.clone()).or_default() += 1;
            false
        }
        Some(room) => {
            *room -= 1;
            true
        }
        None => true,
    });
    (within, waiting)
}

/// What follows from a look, at a wake-up's arrival or by the sweep. Says how many rows had no place and
/// are left to a later sweep.
pub(crate) async fn act(
    engine: &Engine,
    heard: Timed<PollResult>,
    asked: Moment,
    reserved: Reserved<'_>,
    woken_by: WokenBy,
) -> Result<usize, Error> {
    let counters = &engine.kernel.counters;
    counters.stale.add(heard.found.stale);
    counters.expired.add(heard.found.expired);
    let Timed { now, at, found } = heard;
    let route = woken_by.word();
    wakeups(route, "stale", found.stale);
    wakeups(route, "early", found.early.len());
    wakeups(route, "waiting", found.waiting.values().sum());
    let PollResult {
        claimed,
        early,
        waiting,
        ..
    } = found;
    let heard = Timed {
        now,
        at,
        found: claimed,
    };
    let heard = accept(engine, heard, asked, reserved, woken_by);
    engine.waiting(&waiting);
    let (early, left) = ask_first(engine, early);
    for early in early.chunks(defaults::BATCH) {
        let due_wakes = record(engine, &heard, early, Duration::MAX).await?;
        match woken_by {
            // A backend that hangs must not hold up the sweep, which is there to do without it.
            WokenBy::Sweep => engine.kernel.send_soon(due_wakes).await,
            // Sent before the arrival is acknowledged.
            WokenBy::Carrier | WokenBy::Precise | WokenBy::Room => engine.kernel.router.send(due_wakes).await,
        }
    }
    Ok(left)
}

/// Hands over the rows of kinds that have a check; gives those that can go on at once, and how many had no place.
fn ask_first(engine: &Engine, early: Vec<Pending>) -> (Vec<Pending>, usize) {
    if engine.check_queues.is_empty() {
        return (early, 0);
    }
    let mut rest = Vec::with_capacity(early.len());
    let mut left = 0;
    for row in early {
        // One without a key was scheduled by a process that has no check: it is not known what to ask.
        match (engine.check_queues.get(&row.wake.kind), row.key.clone()) {
            (Some(check_queue), Some(key)) => left += usize::from(!check_queue.add_early(key, row)),
            _ => rest.push(row),
        }
    }
    engine.kernel.counters.left_to_sweep.add(left);
    (rest, left)
}

/// Gives claimed tasks to their queues, those of a kind that has a check to be asked about first.
pub(crate) fn accept(
    engine: &Engine,
    heard: Timed<Vec<Task>>,
    asked: Moment,
    mut reserved: Reserved<'_>,
    woken_by: WokenBy,
) -> Timed<()> {
    let claimed_at = ClockSample::just_taken(&heard, engine.kernel.clock.instant());
    let Timed {
        now,
        at,
        found: claimed,
    } = heard;
    let lease = Lease::new(asked, now, engine.lease);
    let counters = &engine.kernel.counters;
    let claimed_by = match woken_by {
        WokenBy::Carrier | WokenBy::Precise => &counters.claimed_on_arrival,
        WokenBy::Room => &counters.claimed_when_ready,
        WokenBy::Sweep => &counters.claimed_by_sweep,
    };
    claimed_by.add(claimed.len());
    wakeups(woken_by.word(), "claimed", claimed.len());
    let mut by_kind: BTreeMap<Kind, Vec<Arc<Attempt>>> = BTreeMap::new();
    for task in claimed {
        // A store that claims more than it was asked to leaves the rest to the end of their leases.
        if reserved.take(&task.kind).is_some() {
            let bytes = engine.budget.take(task.payload.len());
            let of_kind = by_kind.entry(task.kind.clone()).or_default();
            of_kind.push(Attempt::new(task, woken_by, claimed_at, bytes));
        }
    }
    for (kind, attempts) in by_kind {
        let Some(queue) = engine.queues.get(&kind) else {
            continue;
        };
        let check_queue = engine.check_queues.get(&kind);
        let ask = |attempt: &Arc<Attempt>| check_queue.is_some() && attempt.task.key.is_some();
        let (unsure, sure): (Vec<_>, Vec<_>) = attempts.into_iter().partition(ask);
        let accept = |attempts: &[Arc<Attempt>], ask_first| {
            let lost = queue.accept(attempts, lease, ask_first);
            engine.kernel.counters.lost_claims.add(lost);
        };
        accept(&sure, false);
        accept(&unsure, true);
        if let Some(check_queue) = check_queue {
            check_queue.add_claimed(unsure);
        }
    }
    Timed { now, at, found: () }
}

/// Records hops, each to the due time or at the most `within` far: only the process that wins the write sends the next wake-up,
/// of the new version; the others send nothing.
pub(crate) async fn record(
    engine: &Engine,
    heard: &Timed<()>,
    early: &[Pending],
    within: Duration,
) -> Result<Vec<DueWake>, Error> {
    let kernel = &engine.kernel;
    let furthest = heard.now.after(within);
    let hop = |Pending { wake, due_at, .. }: &Pending| {
        let until = heard.until(furthest.min(*due_at));
        let Way { overdue_after, sent } = kernel.way(Some(&wake.kind), until);
        let note = kernel.note_hop(&wake.kind, engine.owner(), sent);
        Step::hop(wake.id, wake.version, overdue_after).with_note(note)
    };
    let hops: Vec<_> = early.iter().map(hop).collect();
    let won = kernel.store.advance(&hops).await?;
    let due_wakes: Vec<DueWake> = early
        .iter()
        .zip(won)
        // Of a row that is locked it is not known: it is overdue soon, and found by the sweep.
        .filter(|&(_, came)| came == Guarded::Done)
        .map(|(Pending { wake, due_at, .. }, _)| {
            debug!(id = %wake.id, kind = %wake.kind, remaining = ?heard.until(*due_at), "hop");
            let wake = Wake {
                version: wake.version + 1,
                ..wake.clone()
            };
            DueWake {
                wake,
                due: heard.instant_of(furthest.min(*due_at)),
            }
        })
        .collect();
    kernel.counters.hops.add(due_wakes.len());
    Ok(due_wakes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_waits_where_its_kind_has_no_room_left() {
        let wake = |number: u128, kind: &str| Wake {
            id: TaskId::from_bytes(number.to_be_bytes()),
            kind: kind.into(),
            version: 1,
        };
        let claim = Claim {
            owner: "worker".into(),
            lease: Duration::ZERO,
            room: [("a".into(), 1), ("b".into(), 0)].into(),
            bytes: usize::MAX,
            history: Default::default(),
        };
        let wakes = [wake(1, "a"), wake(2, "a"), wake(3, "b"), wake(4, "unknown")];
        let (within, waiting) = split_by_room(&wakes, &claim);
        // That there is no handler for it is found out by a look.
        assert_eq!(within, [wake(1, "a"), wake(4, "unknown")]);
        assert_eq!(waiting, [("a".into(), 1), ("b".into(), 1)].into());
    }
}
