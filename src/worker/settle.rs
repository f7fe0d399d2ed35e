//! Ends claims in the store, in batches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{error, warn};

use super::engine::Engine;
use super::lane::{Finished, Settled};
use super::verdict::next_after;
use crate::clock::instant_after;
use crate::router::Trip;
use crate::store::{Ending, Guarded, Settlement};
use crate::{State, Target, Task, Wake, defaults};

/// Settles what has ended, as much at once as is waiting, until nobody can send more.
pub(crate) async fn settle(engine: Arc<Engine>, mut ended: mpsc::UnboundedReceiver<Settled>) {
    // Bounded by the lanes: each claim is here at most once.
    let mut batch = Vec::with_capacity(defaults::BATCH);
    let mut repeating = JoinSet::new();
    while ended.recv_many(&mut batch, defaults::BATCH).await > 0 {
        let won = write(&engine, &batch, false).await;
        let left = conclude(&engine, batch.drain(..).zip(won)).await;
        if !left.is_empty() {
            // What is within reach does not wait for the rest.
            let clock = engine.parts.clock.clone();
            clock.spawn_in(&mut repeating, repeat(Arc::clone(&engine), left));
        }
        while repeating.try_join_next().is_some() {}
    }
    while repeating.join_next().await.is_some() {}
}

/// Settles what was out of reach.
async fn repeat(engine: Arc<Engine>, mut left: Vec<Settled>) {
    let mut pauses = Pauses::default();
    while !left.is_empty() {
        engine.parts.clock.sleep(pauses.next()).await;
        let won = write(&engine, &left, true).await;
        left = conclude(&engine, left.into_iter().zip(won)).await;
    }
}

/// Does what follows when claims were settled, or were somebody else's; gives those of which it is not known.
async fn conclude(engine: &Engine, settled: impl Iterator<Item = (Settled, Option<bool>)>) -> Vec<Settled> {
    let settled_at = engine.parts.clock.instant();
    let mut trips = Vec::new();
    let mut left = Vec::new();
    for (settled, won) in settled {
        let Some(won) = won else {
            left.push(settled);
            continue;
        };
        let Settled {
            lane, task, ending, ..
        } = &settled;
        if won {
            count(engine, task, ending);
            let now = engine.parts.time.now().unwrap_or(task.updated_at);
            if let Some(after) = next_after(ending, now) {
                let wake = Wake {
                    id: task.id,
                    kind: task.kind.clone(),
                    version: task.version + 1,
                };
                trips.push(Trip {
                    wake,
                    due: instant_after(settled_at, after),
                });
            }
        } else if has_finished(engine, &settled).await {
            engine.parts.counters.done.add(1);
        } else {
            engine.parts.counters.lost_claims.add(1);
            warn!(id = %task.id, kind = %task.kind, "a claim was lost before it was settled");
        }
        lane.settled(task.id, task.version);
    }
    engine.room.notify_one();
    engine.parts.send_soon(trips).await;
    left
}

/// Writes the endings, as often as it takes; says of each whether the claim was still ours, or nothing of those out of
/// reach. `repeated`: an earlier try may have had its effect.
async fn write(engine: &Engine, batch: &[Settled], mut repeated: bool) -> Vec<Option<bool>> {
    let settlements: Vec<_> = batch
        .iter()
        .map(|Settled { task, ending, .. }| Settlement {
            id: task.id,
            version: task.version,
            ending: ending.clone(),
        })
        .collect();
    let mut pauses = Pauses::default();
    loop {
        match engine.parts.store.settle(settlements.clone()).await {
            Ok(won) => {
                let mut known = Vec::with_capacity(won.len());
                for (settled, came) in batch.iter().zip(won) {
                    known.push(match came {
                        Guarded::Done => Some(true),
                        Guarded::Lost if repeated => Some(was_settled(engine, settled).await),
                        Guarded::Lost => Some(false),
                        Guarded::Blocked => None,
                    });
                }
                return known;
            }
            Err(cause) if cause.is_transient() => warn!(%cause, claims = batch.len(), "not settled yet"),
            Err(cause) if batch.len() == 1 => {
                // The row cannot be written; when its lease ends the task is tried again.
                error!(%cause, id = %batch[0].task.id, "a claim cannot be settled");
                return vec![Some(was_settled(engine, &batch[0]).await)];
            }
            Err(cause) => {
                // One row may spoil the batch: each by itself.
                warn!(%cause, claims = batch.len(), "not settled together");
                let mut known = Vec::with_capacity(batch.len());
                for one in batch.chunks(1) {
                    known.extend(Box::pin(write(engine, one, true)).await);
                }
                return known;
            }
        }
        repeated = true;
        engine.parts.clock.sleep(pauses.next()).await;
    }
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
        Finished::Perhaps => became(engine, &settled.task, State::Done).await,
    }
}

/// Whether a claim that is gone was ended by an earlier try of ours whose answer was lost.
async fn was_settled(engine: &Engine, Settled { task, ending, .. }: &Settled) -> bool {
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
