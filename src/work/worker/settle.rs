//! Ends claims in the store, in batches.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{error, warn};

use super::attempt::Attempt;
use super::engine::Engine;
use super::kind_queue::KindQueue;
use crate::claims::ClaimId;
use crate::clock::Moment;
use crate::clock::backoff::Backoff;
use crate::clock::panics::pass_on;
use crate::observe::metrics::LOST;
use crate::schedule::kernel::Kernel;
use crate::store::batched_calls::{CALLS, CallPermit, Load, run_batched};
use crate::store::{Ending, Guarded, Step, ended};
use crate::work::lost_answer;
use crate::work::verdict::next_wake;
use crate::{Error, Kind, State, Task};

/// An attempt that has ended.
pub(crate) struct Settled {
    pub(crate) queue: Arc<KindQueue>,
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) ending: Ending,
    pub(crate) finished: Finished,
    pub(crate) since: Moment,
}

/// Whether a claim has been finished in a transaction of its handler's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    No,
    /// The handler says so: then its row is done, and the ending applies only if it never committed.
    Yes,
    /// The handler failed after it: perhaps the answer to its commit was lost.
    Perhaps,
}

/// Settles what has ended, as much at once as is waiting, until nothing more can be sent.
///
/// A few calls are in flight at once, and a row that is locked or out of reach is tried again apart from the others: no
/// end waits for another.
pub(crate) async fn settle(engine: Arc<Engine>, ended: mpsc::UnboundedReceiver<Settled>) {
    let clock = &engine.kernel.clock;
    let call = |batch, turn: CallPermit| {
        let engine = Arc::clone(&engine);
        async move {
            let left = turn.take(write(&engine, batch, false)).await;
            repeat(&engine, left).await;
        }
    };
    // Bounded by the queues: each claim is here at most once.
    let mut calls = run_batched(
        clock,
        CALLS,
        ended,
        |_| Load::ONE,
        call,
        |ended| {
            pass_on(ended);
        },
    )
    .await;
    while let Some(ended) = calls.join_next().await {
        pass_on(ended);
    }
}

/// Settles what could not be, again and again.
async fn repeat(engine: &Engine, mut left: Vec<Settled>) {
    let clock = &engine.kernel.clock;
    let mut backoff = Backoff::CALLS;
    while !left.is_empty() {
        clock.pause(backoff.failed(clock.instant())).await;
        left = write(engine, left, true).await;
    }
}

/// Writes the endings, and does what follows; gives those of which it is not known whether they are written.
/// `repeated`: an earlier try may have had its effect.
async fn write(engine: &Engine, batch: Vec<Settled>, repeated: bool) -> Vec<Settled> {
    match call(engine, &batch).await {
        Ok(came) => conclude(engine, batch, came, repeated).await,
        Err(cause) if cause.is_transient() => {
            warn!(
                %cause, claims = batch.len(),
                "ends of claims could not be written yet; it is tried again, and tasks run once more only if it \
                 fails for a whole lease"
            );
            batch
        }
        Err(cause) if batch.len() == 1 => given_up_in_the_end(engine, batch, &cause).await,
        Err(cause) => {
            // One row may spoil the batch: each by itself.
            warn!(
                %cause, claims = batch.len(),
                "a batch of ends of claims was refused, so each is written by itself"
            );
            one_by_one(engine, batch).await
        }
    }
}

/// The store's answer for each of a batch.
async fn call(engine: &Engine, batch: &[Settled]) -> Result<Vec<Guarded>, Error> {
    let kernel = &engine.kernel;
    let now = kernel.time.now().unwrap_or_default();
    let end = |Settled { attempt, ending, .. }: &Settled| {
        let task = &attempt.task;
        let note = kernel.note_end(Some(task), ending, now);
        let mut step = Step::end(task.id, task.version, ending.clone()).with_note(note);
        step.claimed = Some(Arc::clone(task));
        step
    };
    let ends: Vec<_> = batch.iter().map(end).collect();
    kernel.store.advance(&ends).await
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
    let now = engine.kernel.clock.moment();
    let (over, left): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .partition(|settled| settled.since.until(&now) >= engine.lease);
    for settled in &over {
        give_up(engine, settled, cause).await;
    }
    if !left.is_empty() {
        warn!(
            %cause, claims = left.len(),
            "the store refuses to write ends of claims; it is tried for as long as a lease, then their tasks run \
             once more: see whether the store may be written to"
        );
    }
    left
}

/// The row cannot be written; when its lease ends the task is tried again. Unless an earlier try has had its effect.
async fn give_up(engine: &Engine, settled: &Settled, cause: &Error) {
    let claim = &settled.attempt.task;
    if was_settled(engine, claim, &settled.ending).await {
        count(engine, claim, &settled.ending);
    } else {
        error!(
            %cause, id = %claim.id, kind = %claim.kind,
            "the end of a claim cannot be written; its task is tried again when its lease has ended"
        );
        lost(engine, &claim.kind);
    }
    settled.queue.settled(&settled.attempt);
    engine.room.notify_one();
}

fn lost(engine: &Engine, kind: &Kind) {
    engine.kernel.counters.lost_claims.add(1);
    engine.kernel.metrics.attempted(kind, LOST);
}

/// Does what follows when claims were settled or lost; gives those of which it is not known.
async fn conclude(engine: &Engine, batch: Vec<Settled>, came: Vec<Guarded>, repeated: bool) -> Vec<Settled> {
    let settled_at = engine.kernel.clock.instant();
    let mut due_wakes = Vec::new();
    let mut left = Vec::new();
    for (settled, came) in batch.into_iter().zip(came) {
        let claim = &settled.attempt.task;
        let won = match came {
            Guarded::Done => true,
            Guarded::Lost => repeated && was_settled(engine, claim, &settled.ending).await,
            Guarded::Blocked => {
                left.push(settled);
                continue;
            }
        };
        if won {
            count(engine, claim, &settled.ending);
            let now = engine.kernel.time.now().unwrap_or(claim.updated_at);
            due_wakes.extend(next_wake(claim, &settled.ending, now, settled_at));
        } else if has_finished(engine, &settled).await {
            engine.kernel.ended(&claim.kind, &Ending::Done);
        } else {
            lost(engine, &claim.kind);
            warn!(
                id = %claim.id, kind = %claim.kind,
                "a claim was lost before its end was written; another worker may run its task"
            );
        }
        settled.queue.settled(&settled.attempt);
    }
    engine.room.notify_one();
    engine.kernel.send_soon(due_wakes).await;
    left
}

/// Whether a claim that is gone was finished in a transaction of its handler's.
async fn has_finished(engine: &Engine, settled: &Settled) -> bool {
    match settled.finished {
        Finished::No => false,
        // Asking the store for each would cost more than settling did.
        Finished::Yes => true,
        Finished::Perhaps => became(engine, &settled.attempt.task, State::Done).await,
    }
}

/// Whether a claim that is gone was ended by an earlier try of ours whose answer was lost.
async fn was_settled(engine: &Engine, task: &Task, ending: &Ending) -> bool {
    became(engine, task, ending.leaves()).await
}

/// Whether a claim that is gone made its row this by one transition.
async fn became(engine: &Engine, task: &Task, expected: State) -> bool {
    let Kernel { clock, store, .. } = &*engine.kernel;
    let mut backoff = Backoff::CALLS;
    loop {
        match lost_answer::became(&**store, ClaimId::of(task), Some(task), expected).await {
            Ok(became) => return became,
            Err(cause) if cause.is_transient() => clock.pause(backoff.failed(clock.instant())).await,
            Err(_) => return false,
        }
    }
}

fn count(engine: &Engine, task: &Task, ending: &Ending) {
    engine.kernel.ended(&task.kind, ending);
    engine.kernel.log_failure(task, ending);
    let ended_at = engine.kernel.time.now().unwrap_or(task.updated_at);
    engine.kernel.events.publish(|| ended(task, ending, ended_at));
    if let Ending::Dead { error, give_back } = ending {
        engine.dead(task, error, u32::from(*give_back), ended_at);
    }
}
