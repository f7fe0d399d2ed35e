//! Tasks follow what their service's own table says of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::arrivals::record;
use super::attempt::Attempt;
use super::check_queue::{Asked, CheckQueue};
use super::engine::Engine;
use super::kind_queue::KindQueue;
use super::settle::{Finished, Settled};
use crate::expected::{CheckAction, Expected};
use crate::schedule::follow::due_wake;
use crate::schedule::notes::Way;
use crate::store::store_time::Timed;
use crate::store::{Change, Ending, Expect, Note, Pending, Target, Verb, When};
use crate::task::due_wake::DueWake;
use crate::work::verdict::shortened;
use crate::{Answer, Error, State, Timestamp, defaults};

/// Asks the check of one kind about what waits, a batch at a time, and does as it says, until stopped.
///
/// A task of its own, so that a check that hangs holds up nothing but its kind.
pub(crate) async fn follow(
    engine: Arc<Engine>,
    check_queue: Arc<CheckQueue>,
    settle: mpsc::UnboundedSender<Settled>,
) {
    let kernel = &engine.kernel;
    let limit = (engine.lease / defaults::RENEWALS).min(defaults::CHECK_TIMEOUT);
    let mut failing = false;
    loop {
        // Stopped while it waits for an answer: claims are then given back, and the sweep finds the others.
        let (asked, answer) = tokio::select! {
            biased;
            () = engine.stop.begun() => return,
            answered = async {
                let mut asked = check_queue.next().await;
                let keys = std::mem::take(&mut asked.keys);
                (asked, check_queue.check.ask(keys, &kernel.clock, limit).await)
            } => answered,
        };
        let answered = match answer {
            Ok(answers) => {
                if std::mem::take(&mut failing) {
                    info!(kind = %check_queue.kind, "the check answers again, and tasks of its kind run");
                }
                obey(&engine, &check_queue, asked, &answers, &settle).await
            }
            Err(cause) => {
                kernel.counters.check_failed.add(1);
                if !std::mem::replace(&mut failing, true) {
                    warn!(
                        kind = %check_queue.kind, cause,
                        "the check failed, so no task of its kind is run until it answers; see the service's own \
                         table"
                    );
                }
                put_off(&engine, &check_queue, asked, &cause, &settle).await
            }
        };
        if let Err(error) = answered {
            warn!(
                %error, kind = %check_queue.kind,
                "what the check said could not be written, so these tasks wait for the sweep; see that the store \
                 is up"
            );
        }
    }
}

type Settle = mpsc::UnboundedSender<Settled>;

/// Does as the check says of each.
async fn obey(
    engine: &Engine,
    check_queue: &CheckQueue,
    Asked {
        claimed, due, early, ..
    }: Asked,
    answers: &[Expected],
    settle: &Settle,
) -> Result<(), Error> {
    let kernel = &engine.kernel;
    let (Some(heard), Some(earliest)) = (kernel.time.carried_on(), kernel.time.earliest()) else {
        // Nothing was found by a store that never answered.
        return Ok(());
    };
    let way = |due| kernel.way(Some(&check_queue.kind), heard.until(due));
    let (of_claimed, others) = answers.split_at(claimed.len());
    let (of_due, of_early) = others.split_at(due.len());

    if let Some(queue) = engine.queues.get(&check_queue.kind) {
        let mut to_run = Vec::new();
        for (attempt, expected) in claimed.into_iter().zip(of_claimed) {
            match expected.action_for_claimed(attempt.task.planned_at, earliest) {
                CheckAction::Keep | CheckAction::RunNow => to_run.push(attempt),
                CheckAction::Move(due) => {
                    let overdue_after = way(due).overdue_after;
                    end(
                        engine,
                        queue,
                        attempt,
                        Ending::Moved { due, overdue_after },
                        settle,
                    );
                }
                CheckAction::Cancel => end(engine, queue, attempt, Ending::Cancelled, settle),
            }
        }
        queue.passed(&to_run, kernel.clock.moment());
    }

    let mut kept = Vec::new();
    let mut changes = Vec::new();
    for (row, expected) in due.into_iter().zip(of_due) {
        match expected.action_for_claimed(row.planned_at, earliest) {
            CheckAction::Keep | CheckAction::RunNow => {}
            CheckAction::Move(time) => {
                let Way { overdue_after, sent } = way(time);
                let note = kernel.note_checked(&check_queue.kind, "moved", sent);
                changes.push(change(&row, reschedule(time, overdue_after), note));
            }
            CheckAction::Cancel => {
                changes.push(change(
                    &row,
                    Verb::Cancel,
                    kernel.note_checked(&check_queue.kind, "cancelled", None),
                ));
            }
        }
    }
    for (row, expected) in early.into_iter().zip(of_early) {
        let (verb, note) = match expected.action_for_scheduled(row.planned_at, heard.now) {
            CheckAction::Keep => {
                kept.push(row);
                continue;
            }
            CheckAction::Move(time) => {
                let Way { overdue_after, sent } = way(time);
                (
                    reschedule(time, overdue_after),
                    kernel.note_checked(&check_queue.kind, "moved", sent),
                )
            }
            CheckAction::RunNow => {
                let Way { overdue_after, sent } = way(heard.now);
                (
                    Verb::RunNow { overdue_after },
                    kernel.note_checked(&check_queue.kind, "run_now", sent),
                )
            }
            CheckAction::Cancel => (
                Verb::Cancel,
                kernel.note_checked(&check_queue.kind, "cancelled", None),
            ),
        };
        changes.push(change(&row, verb, note));
    }
    let hopped = hop(engine, &heard, &kept, Duration::MAX).await;
    if !changes.is_empty() {
        let heard = kernel.time.of(kernel.store.change(changes)).await?;
        let mut due_wakes = Vec::new();
        for answer in &heard.found {
            // Any other answer: another process was faster, and sends what follows. An error: the sweep finds the row.
            if let Ok(Answer::Done(task)) = answer {
                kernel.counters.followed.add(1);
                due_wakes.extend((task.state == State::Scheduled).then(|| due_wake(&heard, task)));
            }
        }
        kernel.send_soon(due_wakes).await;
    }
    hopped
}

fn reschedule(time: Timestamp, overdue_after: Duration) -> Verb {
    let due = When::At(time);
    Verb::Reschedule { due, overdue_after }
}

/// A change of a row that is still as it was when it was asked about.
fn change(row: &Pending, verb: Verb, note: Note) -> Change {
    Change {
        target: Target::Id(row.wake.id),
        verb,
        expect: Expect::Version(row.wake.version),
        note,
    }
}

/// It is not known what is expected: nothing runs, and all of it is asked about again soon.
async fn put_off(
    engine: &Engine,
    check_queue: &CheckQueue,
    Asked { claimed, early, .. }: Asked,
    cause: &str,
    settle: &Settle,
) -> Result<(), Error> {
    let kernel = &engine.kernel;
    let after = defaults::CHECK_AGAIN;
    if let Some(queue) = engine.queues.get(&check_queue.kind) {
        let overdue_after = kernel.router.overdue_after(Some(&check_queue.kind), after);
        let snooze = Ending::Snooze {
            after,
            overdue_after,
            reason: Some(shortened(format!("its check failed: {cause}"))),
        };
        for attempt in claimed {
            end(engine, queue, attempt, snooze.clone(), settle);
        }
    }
    match kernel.time.carried_on() {
        Some(heard) => hop(engine, &heard, &early, after).await,
        None => Ok(()),
    }
}

/// Ends a claim whose handler was not started, unless it has been lost or given back meanwhile.
fn end(engine: &Engine, queue: &Arc<KindQueue>, attempt: Arc<Attempt>, ending: Ending, settle: &Settle) {
    let since = engine.kernel.clock.moment();
    if queue.refused(&attempt, since) {
        // The other end is gone only when the worker is.
        let _ = settle.send(Settled {
            queue: Arc::clone(queue),
            attempt,
            ending,
            finished: Finished::No,
            since,
        });
    }
}

/// Sends the wake-ups of `rows` on, each by a hop; they come back within `within`.
async fn hop(engine: &Engine, heard: &Timed<()>, rows: &[Pending], within: Duration) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let due_wakes: Vec<DueWake> = record(engine, heard, rows, within).await?;
    engine.kernel.send_soon(due_wakes).await;
    Ok(())
}
