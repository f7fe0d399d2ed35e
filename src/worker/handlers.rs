//! Runs the handlers of a lane.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use super::Stop;
use super::engine::Engine;
use super::lane::{Finished, Lane, Next, Settled};
use super::verdict::{Verdict, refusal};
use crate::handler::Finishing;
use crate::timestamp::duration;
use crate::{Context, Failure, Outcome, Task};

/// Runs handlers, as many at once as the lane's policy says, until stopped; then until the last has ended.
pub(crate) async fn run(
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    settle: mpsc::UnboundedSender<Settled>,
    mut stopped: watch::Receiver<Stop>,
) {
    let mut handlers = Handlers::new();
    // Only looked up, never walked through: its order is no matter.
    let mut running: HashMap<Id, Running> = HashMap::new();
    loop {
        let stop = *stopped.borrow_and_update();
        let stopping = stop > Stop::No;
        if stop == Stop::Now {
            handlers.abort_all();
        }
        while !stopping && handlers.len() < lane.policy.concurrency {
            match start_next(&engine, &lane, &settle, &mut handlers) {
                Some((handler, started)) => running.insert(handler, started),
                None => break,
            };
        }
        if stopping && handlers.is_empty() {
            return;
        }
        let ended = tokio::select! {
            biased;
            Some(ended) = handlers.join_next_with_id(), if !handlers.is_empty() => ended,
            () = lane.changed(), if !stopping => continue,
            _ = stopped.changed(), if stop < Stop::Now => continue,
        };
        let (handler, verdict) = match ended {
            Ok((handler, Ended::Answered(answer))) => (handler, Verdict::Answered(answer)),
            Ok((handler, Ended::TimedOut)) => (handler, Verdict::TimedOut),
            Ok((handler, Ended::TooLate)) => {
                let lost = running
                    .remove(&handler)
                    .is_some_and(|Running { task, .. }| lane.lost(task.id, task.version));
                engine.parts.counters.lost_claims.add(usize::from(lost));
                engine.room.notify_one();
                continue;
            }
            Err(error) if error.is_panic() => (error.id(), Verdict::Panicked(panic_text(error))),
            Err(error) => (error.id(), Verdict::Stopped),
        };
        if let Some(running) = running.remove(&handler) {
            finish(&engine, &lane, &settle, running, verdict);
        }
    }
}

type Handlers = JoinSet<Ended>;

/// A task whose handler was started, or was to be.
struct Running {
    task: Arc<Task>,
    finishing: Finishing,
}

/// How the task of a handler ended by itself.
enum Ended {
    Answered(Result<Outcome, Failure>),
    /// The handler outlived its execution timeout.
    TimedOut,
    /// The lease ended before the handler began.
    TooLate,
}

/// Starts the handler of the next claim that may start; none, if there is none.
fn start_next(
    engine: &Engine,
    lane: &Arc<Lane>,
    settle: &mpsc::UnboundedSender<Settled>,
    handlers: &mut Handlers,
) -> Option<(Id, Running)> {
    let parts = &engine.parts;
    loop {
        let now = parts.clock.instant();
        let (task, woken_by, finishing, store_now, store_earliest, lease_until) = match lane.next(now)? {
            Next::Start {
                task,
                woken_by,
                finishing,
                store_now,
                store_earliest,
                lease_until,
            } => (task, woken_by, finishing, store_now, store_earliest, lease_until),
            Next::Lost => {
                parts.counters.lost_claims.add(1);
                engine.room.notify_one();
                continue;
            }
        };
        if let Some(verdict) = refusal(&task, &lane.policy, store_earliest) {
            finish(engine, lane, settle, Running { task, finishing }, verdict);
            continue;
        }
        let lateness = duration(store_now.millis_since(task.due_at));
        let context = Context::new(Arc::clone(&task), lateness, woken_by, finishing.clone());
        let timeout = lane.policy.execution_timeout;
        let (clock, handler) = (parts.clock.clone(), Arc::clone(&lane.handler));
        // Called inside as well, since it may panic before its first await.
        let run = async move {
            // Once more: a busy runtime, or a pause of the process, may lie between the start and this.
            if clock.instant() >= lease_until {
                return Ended::TooLate;
            }
            match clock
                .timeout(timeout, async move { handler(context).await })
                .await
            {
                Some(answer) => Ended::Answered(answer),
                None => Ended::TimedOut,
            }
        };
        let started = parts.clock.spawn_in(handlers, run);
        let id = started.id();
        lane.started(&task, started, now.checked_add(timeout));
        parts.counters.started.add(1);
        parts.counters.late(lateness);
        return Some((id, Running { task, finishing }));
    }
}

/// A claim has its verdict: hands it to be settled, unless it was lost meanwhile.
fn finish(
    engine: &Engine,
    lane: &Arc<Lane>,
    settle: &mpsc::UnboundedSender<Settled>,
    Running { task, finishing }: Running,
    verdict: Verdict,
) {
    let parts = &engine.parts;
    let (verdict, finished) = match verdict {
        verdict if !finishing.has_begun() => (verdict, Finished::No),
        Verdict::Answered(Ok(Outcome::Done)) => (Verdict::NotCommitted, Finished::Yes),
        verdict => (verdict, Finished::Perhaps),
    };
    if let Some(store_earliest) = lane.settling(&task, parts.clock.instant()) {
        let ending = verdict.ending(&task, &lane.policy, store_earliest, parts);
        // The other end is gone only when the worker is.
        let _ = settle.send(Settled {
            lane: Arc::clone(lane),
            task,
            ending,
            finished,
        });
    }
}

fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return String::new();
    };
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |text| (*text).to_owned()),
    }
}
