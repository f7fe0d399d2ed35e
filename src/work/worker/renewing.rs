//! Keeps claims alive while their handlers run, and notes which handlers start.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use super::attempt::Attempt;
use super::engine::Engine;
use super::kind_queue::KindQueue;
use crate::clock::panics::pass_on;
use crate::store::batched_calls::{CALLS, CallPermit, Load, run_batched};
use crate::store::{Guarded, Renewal, unanswered};
use crate::{Error, defaults};

/// Renews the leases of all held claims, three times in each lease, and at once where a lease may have ended: after a
/// suspend, a pause of the process, a step of the store's clock. Never ends.
pub(crate) async fn keep(engine: Arc<Engine>) {
    let clock = &engine.kernel.clock;
    let pause = engine.lease / defaults::RENEWALS;
    let mut settled = true;
    loop {
        if settled {
            tokio::select! {
                biased;
                () = engine.unsure.notified() => {}
                () = clock.sleep(pause) => {}
            }
        } else {
            // The leases go on, and queues ask for what is still unsure each time that they look.
            clock.sleep(pause.min(RENEW_AGAIN)).await;
        }
        settled = renew(&engine).await && !engine.is_unsure(&engine.now());
    }
}

/// How soon leases are renewed again that could not be.
const RENEW_AGAIN: Duration = Duration::from_secs(1);

/// Renews all held claims, in batches that do not wait for one another; says whether the store answered for all.
pub(crate) async fn renew(engine: &Arc<Engine>) -> bool {
    let clock = &engine.kernel.clock;
    let mut renewals = Vec::new();
    for queue in engine.queues.values() {
        let of_lane = queue.renewable(&clock.moment(), engine.lease);
        renewals.extend(of_lane.into_iter().map(|renewal| (Arc::clone(queue), renewal)));
    }
    let mut calls = JoinSet::new();
    for batch in renewals.chunks(defaults::BATCH) {
        let (engine, batch) = (Arc::clone(engine), batch.to_vec());
        clock.spawn_in(&mut calls, async move { renew_batch(&engine, &batch).await });
    }
    let mut answered = true;
    while let Some(call) = calls.join_next().await {
        answered &= pass_on(call).is_some_and(|renewed| renewed.is_ok());
    }
    answered
}

async fn renew_batch(engine: &Engine, batch: &[(Arc<KindQueue>, Renewal)]) -> Result<(), Error> {
    let kernel = &engine.kernel;
    let now = engine.now();
    let renewals: Vec<_> = batch.iter().map(|(_, renewal)| *renewal).collect();
    let renewed = extend(engine, &renewals).await.inspect_err(|error| {
        for (queue, renewal) in batch {
            queue.not_renewed(renewal, now.moment);
        }
        warn!(
            %error, claims = batch.len(),
            "leases could not be renewed; what is claimed and waits does not start until they are, and after a \
             lease others may run it: see that the store is up"
        );
    })?;
    for ((queue, renewal), renewed) in batch.iter().zip(renewed) {
        match renewed {
            Guarded::Done => queue.renewed(renewal, engine.lease_from(&now)),
            // It is tried again until the lease ends.
            Guarded::Blocked => {}
            Guarded::Lost if queue.lost(renewal.id, renewal.version) => {
                kernel.counters.lost_claims.add(1);
                engine.room.notify_one();
                warn!(id = %renewal.id, kind = %queue.kind, "a claim was lost; if its handler runs, it is stopped");
            }
            Guarded::Lost => {}
        }
        queue.look_again();
    }
    Ok(())
}

/// Asks the store to move the ends of leases, and to record starts. Each call has a third of the lease at the most, so
/// that after one that hangs there is time for another.
async fn extend(engine: &Engine, renewals: &[Renewal]) -> Result<Vec<Guarded>, Error> {
    let kernel = &engine.kernel;
    let limit = engine.lease / defaults::RENEWALS;
    let renewing = kernel.store.renew(renewals, engine.lease);
    kernel
        .clock
        .timeout(limit, renewing)
        .await
        .unwrap_or_else(|| Err(unanswered(kernel.store.name(), limit)))
}

/// A start to be noted before it happens.
pub(crate) struct Note {
    pub(crate) queue: Arc<KindQueue>,
    pub(crate) attempt: Arc<Attempt>,
}

/// Tells the store which handlers are about to start, as many at once as are waiting, until no more can come.
pub(crate) async fn note(engine: Arc<Engine>, starting: mpsc::UnboundedReceiver<Note>) {
    let clock = &engine.kernel.clock;
    let call = |batch, turn: CallPermit| {
        let engine = Arc::clone(&engine);
        async move {
            let left = turn.take(note_batch(&engine, batch)).await;
            if left.is_empty() {
                return;
            }
            engine.kernel.clock.sleep(NOTE_AGAIN).await;
            for Note { queue, attempt } in left {
                queue.queue_again(&attempt);
            }
        }
    };
    // Bounded by the queues: each claim is here at most once. What is in flight at the end is not waited for.
    run_batched(
        clock,
        CALLS,
        starting,
        |_| Load::ONE,
        call,
        |ended| {
            pass_on(ended);
        },
    )
    .await;
}

/// Gives those that are to be noted again in a while.
async fn note_batch(engine: &Engine, batch: Vec<Note>) -> Vec<Note> {
    let now = engine.now();
    let renewal = |Note { attempt, .. }: &Note| Renewal {
        id: attempt.task.id,
        version: attempt.task.version,
        started: true,
    };
    let renewals: Vec<_> = batch.iter().map(renewal).collect();
    let noted = match extend(engine, &renewals).await {
        Ok(noted) => noted,
        Err(error) => {
            warn!(
                %error, claims = batch.len(),
                "the store could not be told which tasks are about to start, so they wait until it can; see that \
                 it is up"
            );
            // The store failed, and not single claims: all of them are tried again.
            return batch;
        }
    };
    let mut left = Vec::new();
    for (note, noted) in batch.into_iter().zip(noted) {
        let Note { queue, attempt } = &note;
        match noted {
            Guarded::Done => queue.noted(attempt, engine.lease_from(&now)),
            Guarded::Blocked => {
                queue.put_off(attempt);
                left.push(note);
            }
            Guarded::Lost => {
                let lost = queue.lost(attempt.task.id, attempt.task.version);
                engine.kernel.counters.lost_claims.add(usize::from(lost));
                engine.room.notify_one();
                queue.look_again();
            }
        }
    }
    left
}

/// How soon the start of a handler is noted again that could not be.
const NOTE_AGAIN: Duration = Duration::from_millis(250);
