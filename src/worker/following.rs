//! Tasks follow what their service's own table says of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::Stop;
use super::arrivals::record;
use super::engine::Engine;
use super::inquiry::{Asked, Inquiry};
use super::lane::{Finished, Lane, Settled};
use crate::expected::Course;
use crate::router::Trip;
use crate::scheduler::trip;
use crate::store::{Change, Ending, Expect, Pending, Verb};
use crate::store_time::Heard;
use crate::{Answer, Error, Expected, State, Target, Task, Timestamp, When, defaults};

/// Asks the check of one kind about what waits, a batch at a time, and does as it says, until stopped.
///
/// A task of its own, so that a check that hangs holds up nothing but its kind.
pub(crate) async fn follow(
    engine: Arc<Engine>,
    inquiry: Arc<Inquiry>,
    settle: mpsc::UnboundedSender<Settled>,
    mut stopped: watch::Receiver<Stop>,
) {
    let parts = &engine.parts;
    let limit = (engine.lease / defaults::RENEWALS).min(defaults::CHECK_TIMEOUT);
    let mut failing = false;
    loop {
        // Stopped while it waits for an answer: claims are then given back, and the sweep finds the others.
        let (asked, answer) = tokio::select! {
            biased;
            _ = stopped.wait_for(|&stop| stop > Stop::No) => return,
            answered = async {
                let mut asked = inquiry.next().await;
                let keys = std::mem::take(&mut asked.keys);
                (asked, inquiry.check.ask(keys, &parts.clock, limit).await)
            } => answered,
        };
        let answered = match answer {
            Ok(answers) => {
                if std::mem::take(&mut failing) {
                    info!(kind = %inquiry.kind, "the check answers again");
                }
                obey(&engine, &inquiry, asked, &answers, &settle).await
            }
            Err(cause) => {
                parts.counters.check_failed.add(1);
                if !std::mem::replace(&mut failing, true) {
                    warn!(kind = %inquiry.kind, cause, "the check failed; until it answers no task of this kind is run");
                }
                put_off(&engine, &inquiry, asked, &settle).await
            }
        };
        if let Err(error) = answered {
            warn!(%error, kind = %inquiry.kind, "the store could not be told; the sweep will find these tasks");
        }
    }
}

type Settle = mpsc::UnboundedSender<Settled>;

/// Does as the check says of each.
async fn obey(
    engine: &Engine,
    inquiry: &Inquiry,
    Asked {
        claimed, due, early, ..
    }: Asked,
    answers: &[Expected],
    settle: &Settle,
) -> Result<(), Error> {
    let parts = &engine.parts;
    let Some(heard) = parts.time.carried_on() else {
        // Nothing was found by a store that never answered.
        return Ok(());
    };
    let look_in = |due| parts.router.look_in(Some(&inquiry.kind), heard.until(due));
    let (of_claimed, others) = answers.split_at(claimed.len());
    let (of_due, of_early) = others.split_at(due.len());

    if let Some(lane) = engine.lanes.get(&inquiry.kind) {
        let mut to_run = Vec::new();
        for (task, expected) in claimed.into_iter().zip(of_claimed) {
            match expected.course_of_claimed(task.planned_at, heard.now) {
                Course::Keep | Course::RunNow => to_run.push(task),
                Course::Move(due) => {
                    let look_in = look_in(due);
                    end(engine, lane, task, Ending::Moved { due, look_in }, settle);
                }
                Course::Cancel => end(engine, lane, task, Ending::Cancelled, settle),
            }
        }
        lane.passed(&to_run, parts.clock.moment());
    }

    let mut kept = Vec::new();
    let mut changes = Vec::new();
    for (row, expected) in due.into_iter().zip(of_due) {
        match expected.course_of_claimed(row.planned_at, heard.now) {
            Course::Keep | Course::RunNow => {}
            Course::Move(time) => changes.push(change(&row, reschedule(time, look_in(time)))),
            Course::Cancel => changes.push(change(&row, Verb::Cancel)),
        }
    }
    for (row, expected) in early.into_iter().zip(of_early) {
        let verb = match expected.course_of_early(row.planned_at, heard.now) {
            Course::Keep => {
                kept.push(row);
                continue;
            }
            Course::Move(time) => reschedule(time, look_in(time)),
            Course::RunNow => Verb::RunNow {
                look_in: look_in(heard.now),
            },
            Course::Cancel => Verb::Cancel,
        };
        changes.push(change(&row, verb));
    }
    let hopped = hop(engine, &heard, &kept, Duration::MAX).await;
    if !changes.is_empty() {
        let asked = parts.clock.instant();
        let heard = parts.time.heard(asked, parts.store.change(changes).await?);
        let mut trips = Vec::new();
        for answer in &heard.found {
            // Any other answer: somebody else was faster, and sends what follows. An error: the sweep finds the row.
            if let Ok(Answer::Done(task)) = answer {
                parts.counters.followed.add(1);
                trips.extend((task.state == State::Scheduled).then(|| trip(&heard, task)));
            }
        }
        parts.send_soon(trips).await;
    }
    hopped
}

fn reschedule(time: Timestamp, look_in: Duration) -> Verb {
    let due = When::At(time);
    Verb::Reschedule { due, look_in }
}

/// A change of a row that is still as it was when it was asked about.
fn change(row: &Pending, verb: Verb) -> Change {
    Change {
        target: Target::Id(row.wake.id),
        verb,
        expect: Expect::Version(row.wake.version),
    }
}

/// Nobody knows what is expected: nothing runs, and all of it is asked about again soon.
async fn put_off(
    engine: &Engine,
    inquiry: &Inquiry,
    Asked { claimed, early, .. }: Asked,
    settle: &Settle,
) -> Result<(), Error> {
    let parts = &engine.parts;
    let after = defaults::CHECK_AGAIN;
    if let Some(lane) = engine.lanes.get(&inquiry.kind) {
        let look_in = parts.router.look_in(Some(&inquiry.kind), after);
        for task in claimed {
            end(engine, lane, task, Ending::Snooze { after, look_in }, settle);
        }
    }
    match parts.time.carried_on() {
        Some(heard) => hop(engine, &heard, &early, after).await,
        None => Ok(()),
    }
}

/// Ends a claim whose handler was not started, unless it has been lost or given back meanwhile.
fn end(engine: &Engine, lane: &Arc<Lane>, task: Arc<Task>, ending: Ending, settle: &Settle) {
    let since = engine.parts.clock.moment();
    if lane.refused(&task, since) {
        // The other end is gone only when the worker is.
        let _ = settle.send(Settled {
            lane: Arc::clone(lane),
            task,
            ending,
            finished: Finished::No,
            since,
        });
    }
}

/// Sends the wake-ups of `rows` on, each by a hop; they come back within `within`.
async fn hop(engine: &Engine, heard: &Heard<()>, rows: &[Pending], within: Duration) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let trips: Vec<Trip> = record(engine, heard, rows, within).await?;
    engine.parts.send_soon(trips).await;
    Ok(())
}
