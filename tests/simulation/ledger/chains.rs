//! Wake-ups: each sent once and only for what is recorded, for the right time, and again when it was refused.

use std::time::Duration;

use delayline::State;
use delayline::backend::{Departure, Wake};
use delayline::delay::{Hop, plan};

use super::{Ledger, Seen, short};
use crate::ground::Ground;
use crate::plan::Precise;

/// How long a worker may take until what one backend refused is given to the other.
const SENT_ON_WITHIN: Duration = Duration::from_secs(2);

/// How far a delay may be from the time that is left, where nothing is slow.
const CLOSE: i64 = 40;

impl Ledger {
    /// A process sends wake-ups; `resending`: for a second time.
    pub(crate) fn sending(
        &self,
        ground: &Ground,
        life: u64,
        backend: &'static str,
        batch: &[Departure],
        resending: bool,
    ) {
        let mut wrong = Vec::new();
        for Departure { wake, delay } in batch {
            self.note(|| {
                format!(
                    "send: {} v{} {backend} {delay:?} by {life}",
                    short(wake.id),
                    wake.version
                )
            });
            let row = ground.row(wake.id);
            let mut book = self.book();
            if backend == "precise" {
                book.refused.remove(&(life, wake.clone()));
            }
            if !resending {
                *book.sent.entry((backend, wake.clone())).or_default() += 1;
            }
            let is_purged = book.stories.get(&wake.id).is_some_and(|story| story.purged);
            let recorded = row.as_ref().map_or(0, |row| row.version);
            if wake.version > recorded && !is_purged {
                wrong.push(format!("{wake:?} was sent before it was recorded: {row:?}"));
            }
            // What is sent counts from the store's clock, whatever the process's own says.
            if let Some(row) = row.filter(|row| row.version == wake.version && self.plan.calm) {
                let left = row.due_at.millis_since(ground.clock.now()).max(0);
                let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                let most = left + i64::try_from(self.plan.routing.tolerance.as_millis()).unwrap() + CLOSE;
                let is_short =
                    delay + CLOSE < left && backend == "precise" && !self.plan.is_followed(&row.kind);
                if delay > most || is_short {
                    wrong.push(format!(
                        "{wake:?} was sent for {delay} ms, {left} ms before it is due"
                    ));
                }
            }
        }
        for text in wrong {
            self.broken("5 one chain", text);
        }
    }

    /// The carrier has refused these: they are to be sent to the precise one.
    pub(crate) fn refused<'a>(&self, life: u64, wakes: impl Iterator<Item = &'a Wake>) {
        if self.plan.precise == Precise::Table {
            // Which no call shows.
            return;
        }
        let mut book = self.book();
        let Some(now) = book.lives.get(&life).map(|process| process.clock.instant()) else {
            return;
        };
        for wake in wakes {
            book.refused.insert((life, wake.clone()), now);
        }
    }

    /// At the end: was each wake-up sent once, and each that was refused sent on?
    pub(super) fn check_sent(&self) {
        let mut wrong = Vec::new();
        {
            let book = self.book();
            for ((backend, wake), &times) in book.sent.iter().filter(|&(_, &times)| times > 1) {
                // One that is scheduled once more when its history is over begins anew.
                if book.stories.get(&wake.id).is_some_and(|story| story.purged) {
                    continue;
                }
                wrong.push(format!("{wake:?} was sent {times} times to {backend}"));
            }
            for ((life, wake), refused) in &book.refused {
                let process = &book.lives[life];
                if process.is_alive && process.clock.instant() - *refused > SENT_ON_WITHIN {
                    wrong.push(format!(
                        "{wake:?} was refused, and not sent to the precise backend"
                    ));
                }
            }
        }
        for text in wrong {
            self.broken("5 one chain", text);
        }
        if self.plan.calm {
            self.check_chains();
        }
    }

    /// In a calm history every chain takes the hops of its plan, and is as late as its last hop.
    fn check_chains(&self) {
        let mut wrong = Vec::new();
        let book = self.book();
        for story in book.stories.values() {
            let Some((_, claimed)) = story
                .versions
                .iter()
                .find(|(_, seen)| seen.task.state == State::Running)
            else {
                continue;
            };
            let task = &claimed.task;
            // What is no hop, such as an edit that keeps the time, begins a chain of its own.
            let mut first: Option<&Seen> = None;
            for (_, seen) in story.versions.range(..task.version).rev() {
                let is_hop = first.is_none_or(|next| next.task.hop > seen.task.hop);
                if seen.task.due_at != task.due_at || !is_hop {
                    break;
                }
                first = Some(seen);
            }
            let Some(first) = first else {
                continue;
            };
            if task.attempt > 1 || self.plan.is_followed(&task.kind) {
                continue;
            }
            let written = first.task.updated_at;
            let asked = task.due_at.millis_since(written);
            let asked = Duration::from_millis(u64::try_from(asked).unwrap_or(0));
            let routing = &self.plan.routing;
            // When it is overdue is reckoned some ms before the row is written, if it is for a time by the calendar, and
            // the first wake-up is sent some ms after: each perhaps on the other side of a limit. Then the one that is on
            // its way is overdue too soon, and the sweep's takes a hop more.
            let some = Duration::from_millis(25);
            let plans = [asked + some, asked, asked.saturating_sub(some)]
                .map(|remaining| (remaining, plan(remaining, routing, self.plan.levels.as_ref())));
            let most = plans.iter().map(|(_, plan)| plan.hops.len()).max().unwrap_or(0);
            // A level is up to 100 ms late here and the steps in between some ms. A chain is whole as long as its
            // lateness in all fits into the tolerance, of which the plan itself may use a part.
            let used = plans.iter().map(|(remaining, plan)| {
                let hops: Duration = plan.hops.iter().map(Hop::delay).sum();
                (hops + plan.precise).saturating_sub(*remaining)
            });
            let lateness = Duration::from_millis(110) * u32::try_from(most).unwrap_or(u32::MAX);
            // A task that was moved by its id is looked at sooner than it need be, where some kind has a check.
            if !self.plan.follows && lateness + used.max().unwrap_or_default() < routing.tolerance {
                let taken = task.hop - first.task.hop;
                if taken as usize > most {
                    wrong.push(("5 one chain", format!("{taken} hops, planned {most}: {task:?}")));
                }
            }
            let late = claimed.task.updated_at.millis_since(task.due_at.max(written));
            let allowed = routing.tolerance.as_millis() as i64 + 200 + self.plan.calm_lateness(asked);
            if late > allowed {
                wrong.push((
                    "6 lateness",
                    format!("{late} ms late, allowed are {allowed}: {task:?}"),
                ));
            }
        }
        drop(book);
        for (check, text) in wrong {
            self.broken(check, text);
        }
    }
}
