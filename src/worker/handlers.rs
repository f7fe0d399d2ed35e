//! Runs the handlers of a lane.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use super::Stop;
use super::engine::Engine;
use super::lane::{Finished, Lane, Next, Settled, Starting};
use super::renewing::Note;
use super::verdict::{Verdict, refusal};
use crate::handler::Finishing;
use crate::timestamp::duration;
use crate::{Context, Failure, Outcome, Task};

/// Runs handlers, as many at once as the lane's policy says, until stopped; then until the last has ended.
pub(crate) async fn run(
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    senders: Senders,
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
        while !stopping && handlers.len() + lane.noting() < lane.policy.concurrency {
            match start_next(&engine, &lane, &senders, &mut handlers) {
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
                if let Some(Running { task, .. }) = running.remove(&handler) {
                    lane.handler_ended(&task);
                    lane.put_back(&task);
                }
                engine.unsure.notify_one();
                continue;
            }
            Err(error) if error.is_panic() => (error.id(), Verdict::Panicked(panic_text(error))),
            Err(error) => (error.id(), Verdict::Stopped),
        };
        if let Some(running) = running.remove(&handler) {
            lane.handler_ended(&running.task);
            finish(&engine, &lane, &senders.settle, running, verdict);
        }
    }
}

/// Where a lane sends its claims.
#[derive(Clone)]
pub(crate) struct Senders {
    pub(crate) settle: mpsc::UnboundedSender<Settled>,
    pub(crate) note: mpsc::UnboundedSender<Note>,
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

/// Starts the handler of the next claim that may start; none, if there is none or no place.
fn start_next(
    engine: &Arc<Engine>,
    lane: &Arc<Lane>,
    senders: &Senders,
    handlers: &mut Handlers,
) -> Option<(Id, Running)> {
    let parts = &engine.parts;
    while handlers.len() + lane.noting() < lane.policy.concurrency {
        let now = engine.now();
        let Starting {
            task,
            woken_by,
            finishing,
            store_now,
            store_earliest,
            lease,
        } = match lane.next(&now)? {
            Next::Start(starting) => starting,
            Next::Note(task) => {
                let lane = Arc::clone(lane);
                // The other end is gone only when the worker is.
                let _ = senders.note.send(Note { lane, task });
                continue;
            }
            Next::Ask(task) => {
                if let Some(inquiry) = engine.inquiries.get(&lane.kind) {
                    inquiry.add_claimed(vec![task]);
                }
                continue;
            }
            Next::Unsure => {
                engine.unsure.notify_one();
                return None;
            }
        };
        if let Some(verdict) = refusal(&task, &lane.policy, store_earliest) {
            finish(
                engine,
                lane,
                &senders.settle,
                Running { task, finishing },
                verdict,
            );
            continue;
        }
        let lateness = duration(store_now.millis_since(task.due_at));
        let context = Context::new(Arc::clone(&task), lateness, woken_by, finishing.clone());
        let timeout = lane.policy.execution_timeout;
        let (inside, handler) = (Arc::clone(engine), Arc::clone(&lane.handler));
        // Called inside as well, since it may panic before its first await.
        let run = async move {
            // Once more: a busy runtime, or a pause of the process, may lie between the start and this.
            if !lease.holds(&inside.now()) {
                return Ended::TooLate;
            }
            inside.parts.counters.started.add(1);
            inside.parts.counters.late(lateness);
            match inside
                .parts
                .clock
                .timeout(timeout, async move { handler(context).await })
                .await
            {
                Some(answer) => Ended::Answered(answer),
                None => Ended::TimedOut,
            }
        };
        let started = parts.clock.spawn_in(handlers, run);
        let id = started.id();
        lane.started(&task, started, now.moment.instant().checked_add(timeout));
        return Some((id, Running { task, finishing }));
    }
    None
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
    let since = parts.clock.moment();
    if let Some((current, store_earliest)) = lane.settling(&task, since) {
        let ending = verdict.ending(&current, &lane.policy, store_earliest, parts);
        // The other end is gone only when the worker is.
        let _ = settle.send(Settled {
            lane: Arc::clone(lane),
            task,
            ending,
            finished,
            since,
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
