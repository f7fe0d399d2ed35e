//! Ends claims in the store, in batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{error, warn};

use super::engine::Engine;
use super::lane::{Finished, Settled};
use super::pass_on;
use super::verdict::next_after;
use crate::clock::instant_after;
use crate::router::Trip;
use crate::store::{Ending, Guarded, Settlement};
use crate::turns::Turns;
use crate::{Error, State, Target, Task, Wake, defaults};

/// Settles what has ended, as much at once as is waiting, until nobody can send more.
///
/// A few calls are in flight at once, and a row that is locked or out of reach is tried again apart from the others: no
/// end waits for another.
pub(crate) async fn settle(engine: Arc<Engine>, mut ended: mpsc::UnboundedReceiver<Settled>) {
    let clock = &engine.parts.clock;
    let turns = Turns::new(clock.clone());
    let mut calls = JoinSet::new();
    loop {
        let turn = turns.next().await;
        // Bounded by the lanes: each claim is here at most once.
        let mut batch = Vec::new();
        let came = loop {
            tokio::select! {
                biased;
                Some(ended) = calls.join_next() => pass_on(ended),
                came = ended.recv_many(&mut batch, defaults::BATCH) => break came,
            };
        };
        if came == 0 {
            break;
        }
        let engine = Arc::clone(&engine);
        clock.spawn_in(&mut calls, async move {
            let left = turn.take(write(&engine, batch, false)).await;
            repeat(&engine, left).await;
        });
    }
    while let Some(ended) = calls.join_next().await {
        pass_on(ended);
    }
}

/// Settles what could not be, again and again.
async fn repeat(engine: &Engine, mut left: Vec<Settled>) {
    let mut pauses = Pauses::default();
    while !left.is_empty() {
        engine.parts.clock.sleep(pauses.next()).await;
        left = write(engine, left, true).await;
    }
}

/// Writes the endings, and does what follows; gives those of which it is not known whether they are written.
/// `repeated`: an earlier try may have had its effect.
async fn write(engine: &Engine, batch: Vec<Settled>, repeated: bool) -> Vec<Settled> {
    match call(engine, &batch).await {
        Ok(came) => conclude(engine, batch, came, repeated).await,
        Err(cause) if cause.is_transient() => {
            warn!(%cause, claims = batch.len(), "ends of claims are not written yet; that is repeated");
            batch
        }
        Err(cause) if batch.len() == 1 => given_up_in_the_end(engine, batch, &cause).await,
        Err(cause) => {
            // One row may spoil the batch: each by itself.
            warn!(%cause, claims = batch.len(), "ends of claims were not written together");
            one_by_one(engine, batch).await
        }
    }
}

/// The store's answer for each of a batch.
async fn call(engine: &Engine, batch: &[Settled]) -> Result<Vec<Guarded>, Error> {
    let settlement = |settled: &Settled| Settlement {
        id: settled.task.id,
        version: current(settled).version,
        ending: settled.ending.clone(),
    };
    engine
        .parts
        .store
        .settle(batch.iter().map(settlement).collect())
        .await
}

/// The claim as the store knows it: it may have been lost and taken back meanwhile.
fn current(Settled { lane, task, .. }: &Settled) -> Arc<Task> {
    lane.current(task).unwrap_or_else(|| Arc::clone(task))
}

/// Writes each ending by itself. Where others can be written, one that the store refuses for good never will be; where
/// the first few are all refused, the store may refuse everything, and the others come first the next time.
async fn one_by_one(engine: &Engine, batch: Vec<Settled>) -> Vec<Settled> {
    let mut left = Vec::new();
    let mut refused = Vec::new();
    let mut any_written = false;
    for settled in batch {
        if !any_written && refused.len() == REFUSED_AT_MOST {
            left.push(settled);
            continue;
        }
        match call(engine, std::slice::from_ref(&settled)).await {
            Ok(came) => {
                any_written = true;
                left.extend(conclude(engine, vec![settled], came, true).await);
            }
            Err(cause) if cause.is_transient() => left.push(settled),
            Err(cause) => refused.push((settled, cause)),
        }
    }
    for (settled, cause) in refused {
        if any_written {
            give_up(engine, &settled, &cause).await;
        } else {
            left.extend(given_up_in_the_end(engine, vec![settled], &cause).await);
        }
    }
    left
}

/// How many ends are tried by themselves of a batch that is refused.
const REFUSED_AT_MOST: usize = 3;

/// The store refuses this claim's end, and perhaps everything, for a moment: a table that is being renamed, a right that
/// was withdrawn. Only when a lease has passed over it the claim is given up.
async fn given_up_in_the_end(engine: &Engine, batch: Vec<Settled>, cause: &Error) -> Vec<Settled> {
    let now = engine.parts.clock.moment();
    let (over, left): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .partition(|settled| settled.since.until(&now) >= engine.lease);
    for settled in &over {
        give_up(engine, settled, cause).await;
    }
    if !left.is_empty() {
        warn!(%cause, claims = left.len(), "the store refuses ends of claims; that is repeated for as long as a lease");
    }
    left
}

/// The row cannot be written; when its lease ends the task is tried again. Unless an earlier try has had its effect.
async fn give_up(engine: &Engine, settled: &Settled, cause: &Error) {
    let claim = current(settled);
    if was_settled(engine, &claim, &settled.ending).await {
        count(engine, &claim, &settled.ending);
    } else {
        error!(%cause, id = %claim.id, kind = %claim.kind, "the end of a claim cannot be written; its task is tried again when its lease has ended");
        engine.parts.counters.lost_claims.add(1);
    }
    settled.lane.settled(&settled.task);
    engine.room.notify_one();
}

/// Does what follows when claims were settled, or were somebody else's; gives those of which it is not known.
async fn conclude(engine: &Engine, batch: Vec<Settled>, came: Vec<Guarded>, repeated: bool) -> Vec<Settled> {
    let settled_at = engine.parts.clock.instant();
    let mut trips = Vec::new();
    let mut left = Vec::new();
    for (settled, came) in batch.into_iter().zip(came) {
        let claim = current(&settled);
        let won = match came {
            Guarded::Done => true,
            Guarded::Lost => repeated && was_settled(engine, &claim, &settled.ending).await,
            Guarded::Blocked => {
                left.push(settled);
                continue;
            }
        };
        if won {
            count(engine, &claim, &settled.ending);
            let now = engine.parts.time.now().unwrap_or(claim.updated_at);
            if let Some(after) = next_after(&settled.ending, now) {
                let wake = Wake {
                    id: claim.id,
                    kind: claim.kind.clone(),
                    version: claim.version + 1,
                };
                trips.push(Trip {
                    wake,
                    due: instant_after(settled_at, after),
                });
            }
        } else if current(&settled).version != claim.version {
            // Lost and taken back while this was on its way: the end is for the claim that there is now.
            left.push(settled);
            continue;
        } else if has_finished(engine, &settled).await {
            engine.parts.counters.done.add(1);
        } else {
            engine.parts.counters.lost_claims.add(1);
            warn!(id = %claim.id, kind = %claim.kind, "a claim was lost before its end was written; another worker may run its task");
        }
        settled.lane.settled(&settled.task);
    }
    engine.room.notify_one();
    engine.parts.send_soon(trips).await;
    left
}

/// How long to wait for a store that failed, again and again: twice as long each time, up to a second.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = Duration::from_millis(50 << self.0.min(5));
        self.0 += 1;
        pause.min(Duration::from_secs(1))
    }
}

/// Whether a claim that is gone was finished in a transaction of its handler's.
async fn has_finished(engine: &Engine, settled: &Settled) -> bool {
    match settled.finished {
        Finished::No => false,
        // Asking the store for each would cost more than settling did.
        Finished::Yes => true,
        Finished::Perhaps => became(engine, &current(settled), State::Done).await,
    }
}

/// Whether a claim that is gone was ended by an earlier try of ours whose answer was lost.
async fn was_settled(engine: &Engine, task: &Task, ending: &Ending) -> bool {
    let expected = match ending {
        Ending::Done => State::Done,
        Ending::Dead { .. } => State::Dead,
        Ending::Cancelled => State::Cancelled,
        Ending::Retry { .. }
        | Ending::Snooze { .. }
        | Ending::Again { .. }
        | Ending::Moved { .. }
        | Ending::Release => State::Scheduled,
    };
    became(engine, task, expected).await
}

/// Whether a claim that is gone made its row this by one transition.
async fn became(engine: &Engine, task: &Task, expected: State) -> bool {
    let mut pauses = Pauses::default();
    loop {
        match engine.parts.store.find(&Target::Id(task.id)).await {
            Ok(Some(row)) => {
                return row.version == task.version + 1 && row.state == expected && row.owner == task.owner;
            }
            Ok(None) => return false,
            Err(cause) if cause.is_transient() => engine.parts.clock.sleep(pauses.next()).await,
            Err(_) => return false,
        }
    }
}

fn count(engine: &Engine, task: &Task, ending: &Ending) {
    let counters = &engine.parts.counters;
    match ending {
        Ending::Done | Ending::Again { .. } => counters.done.add(1),
        Ending::Retry { .. } => counters.retried.add(1),
        Ending::Snooze { .. } => counters.snoozed.add(1),
        Ending::Release => counters.released.add(1),
        Ending::Moved { .. } | Ending::Cancelled => counters.followed.add(1),
        Ending::Dead { error, give_back } => {
            let ended_at = engine.parts.time.now().unwrap_or(task.updated_at);
            engine.dead(task, error, *give_back, ended_at);
        }
    }
}
