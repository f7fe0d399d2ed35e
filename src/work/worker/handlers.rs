//! Runs the handlers of a queue.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};

use super::attempt::Attempt;
use super::engine::Engine;
use super::kind_queue::{KindQueue, Next};
use super::pausing;
use super::renewing::Note;
use super::settle::{Finished, Settled};
use super::stop::Stage;
use crate::clock::panics::panic_text;
use crate::observe::metrics::{LOST, Stopwatch, outcome};
use crate::store::Ending;
use crate::task::timestamp::duration;
use crate::work::verdict::{Verdict, refusal};
use crate::{Context, Failure, Outcome};

/// Runs handlers, as many at once as the queue's policy says, until stopped; then until the last has ended.
pub(crate) async fn run(engine: Arc<Engine>, queue: Arc<KindQueue>, senders: Senders) {
    let mut handlers = Handlers::new();
    // Only looked up, never walked through: its order is no matter.
    let mut running: HashMap<Id, (Arc<Attempt>, Stopwatch)> = HashMap::new();
    loop {
        let stage = engine.stop.stage();
        let stopping = stage > Stage::Working;
        if stage == Stage::Stopping {
            handlers.abort_all();
        }
        while !stopping && handlers.len() + queue.noting() < queue.policy.concurrency {
            match start_next(&engine, &queue, &senders, &mut handlers) {
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
            () = queue.changed(), if !stopping => continue,
            () = engine.stop.beyond(stage), if stage < Stage::Stopping => continue,
        };
        let (handler, verdict) = match ended {
            Ok((handler, Ended::Answered(answer))) => (handler, Verdict::Answered(answer)),
            Ok((handler, Ended::TimedOut)) => (handler, Verdict::TimedOut),
            Ok((handler, Ended::TooLate)) => {
                if let Some((attempt, _)) = running.remove(&handler) {
                    queue.handler_ended(&attempt, &engine.kernel.clock.moment());
                    queue.put_back(&attempt);
                }
                engine.unsure.notify_one();
                continue;
            }
            Err(error) if error.is_panic() => (error.id(), Verdict::Panicked(panic_text(error))),
            Err(error) => (error.id(), Verdict::Stopped),
        };
        if let Some((attempt, since)) = running.remove(&handler) {
            queue.handler_ended(&attempt, &engine.kernel.clock.moment());
            let outcome = finish(&engine, &queue, &senders.settle, attempt, verdict);
            let kernel = &engine.kernel;
            kernel
                .metrics
                .processed(&queue.kind, outcome, since, &kernel.clock);
        }
    }
}

/// Where a queue sends its claims.
#[derive(Clone)]
pub(crate) struct Senders {
    pub(crate) settle: mpsc::UnboundedSender<Settled>,
    pub(crate) note: mpsc::UnboundedSender<Note>,
}

type Handlers = JoinSet<Ended>;

/// How the task of a handler ended by itself.
enum Ended {
    Answered(Result<Outcome, Failure>),
    /// The handler outlived its execution timeout.
    TimedOut,
    /// The lease ended before the handler began, or what was known of pauses was too old by then.
    TooLate,
}

/// Starts the handler of the next claim that may start; none, if there is none or no place.
fn start_next(
    engine: &Arc<Engine>,
    queue: &Arc<KindQueue>,
    senders: &Senders,
    handlers: &mut Handlers,
) -> Option<(Id, (Arc<Attempt>, Stopwatch))> {
    let kernel = &engine.kernel;
    while handlers.len() + queue.noting() < queue.policy.concurrency {
        let now = engine.now();
        if queue.has_queued() && !pausing::may_start(engine, queue, &now) {
            return None;
        }
        let (attempt, lease) = match queue.next(&now)? {
            Next::Start(attempt, lease) => (attempt, lease),
            Next::Note(attempt) => {
                let queue = Arc::clone(queue);
                // The other end is gone only when the worker is.
                let _ = senders.note.send(Note { queue, attempt });
                continue;
            }
            Next::Ask(attempt) => {
                if let Some(check_queue) = engine.check_queues.get(&queue.kind) {
                    check_queue.add_claimed(vec![attempt]);
                }
                continue;
            }
            Next::Unsure => {
                engine.unsure.notify_one();
                return None;
            }
        };
        let Attempt { task, claimed, .. } = &*attempt;
        // Nothing is too late that may be in time.
        let earliest = claimed.earliest(now.moment.instant());
        if let Some(verdict) = refusal(task, &queue.policy, earliest) {
            finish(engine, queue, &senders.settle, attempt, verdict);
            continue;
        }
        let lateness = duration(claimed.now(now.moment.instant()).millis_since(task.due_at));
        let context = Context::new(
            Arc::clone(task),
            lateness,
            attempt.woken_by,
            attempt.finishing.clone(),
            kernel.histories().of(&task.kind),
        );
        let timeout = queue.policy.execution_timeout;
        let (inside, handler) = (Arc::clone(engine), Arc::clone(&queue.handler));
        // Called inside as well, since it may panic before its first await.
        let run = async move {
            let (kind, woken_by) = (&context.task().kind, context.woken_by().word());
            // Once more: a busy runtime, or a pause of the process, may lie between the start and this.
            let now = inside.now();
            if !lease.holds(&now) || !inside.kernel.pauses.allow(kind, &now.moment, &inside.kernel.time) {
                return Ended::TooLate;
            }
            inside.kernel.started(kind, woken_by, lateness);
            match inside
                .kernel
                .clock
                .timeout(timeout, async move { handler(context).await })
                .await
            {
                Some(answer) => Ended::Answered(answer),
                None => Ended::TimedOut,
            }
        };
        kernel.events.publish(|| (**task).clone());
        let started = kernel.clock.spawn_handler(handlers, run);
        let id = started.id();
        queue.started(&attempt, started, now.moment.instant().checked_add(timeout));
        return Some((id, (attempt, Stopwatch::start(&kernel.clock))));
    }
    None
}

/// A claim has its verdict: hands it to be settled, unless it was lost meanwhile. Says what came of it, in a word.
fn finish(
    engine: &Engine,
    queue: &Arc<KindQueue>,
    settle: &mpsc::UnboundedSender<Settled>,
    attempt: Arc<Attempt>,
    verdict: Verdict,
) -> &'static str {
    let kernel = &engine.kernel;
    let (verdict, finished) = match verdict {
        verdict if !attempt.finishing.has_begun() => (verdict, Finished::No),
        Verdict::Answered(Ok(Outcome::Done)) => (Verdict::NotCommitted, Finished::Yes),
        verdict => (verdict, Finished::Perhaps),
    };
    let since = kernel.clock.moment();
    let Some(store_earliest) = queue.settling(&attempt, since) else {
        kernel.metrics.attempted(&queue.kind, LOST);
        return LOST;
    };
    // By the attempt that it was started as, whatever became of its claim since.
    let ending = verdict.ending(&attempt.task, &queue.policy, store_earliest, kernel);
    let outcome = match finished {
        // What is to be written applies only if it is not.
        Finished::Yes => outcome(&Ending::Done),
        Finished::No | Finished::Perhaps => outcome(&ending),
    };
    // The other end is gone only when the worker is.
    let _ = settle.send(Settled {
        queue: Arc::clone(queue),
        attempt,
        ending,
        finished,
        since,
    });
    outcome
}
