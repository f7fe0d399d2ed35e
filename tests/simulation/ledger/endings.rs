//! How claims end: as their handlers answered, and dead only for a reason.

use std::time::Duration;

use delayline::store::Ending;
use delayline::{Task, TaskId, Timestamp};

use super::{CameOfIt, Ledger};

/// How long a worker that can may leave a verdict unsettled: the longest pause between two tries, and a try.
const SETTLES_AGAIN_WITHIN: Duration = Duration::from_secs(2);

impl Ledger {
    /// A worker begins to settle these claims.
    pub(crate) fn settling(&self, life: u64, ids: impl Iterator<Item = (TaskId, u64)>) {
        let mut book = self.book();
        let now = book.lives.get(&life).map(|process| process.clock.instant());
        for (id, version) in ids {
            let story = book.stories.entry(id).or_default();
            if let Some(held) = story.claims.get_mut(&version) {
                held.settling = now;
            }
        }
    }

    /// A claim was ended by its worker: is that what came of it?
    pub(super) fn check_ending(
        &self,
        task: &Task,
        after: &Task,
        ending: &Ending,
        what: &str,
        now: Timestamp,
    ) {
        let book = self.book();
        let Some(story) = book.stories.get(&task.id) else {
            return;
        };
        let Some(held) = story.claims.get(&task.version) else {
            return;
        };
        if what == "commit" {
            if !held.finishing {
                let text = format!("{task:?} was finished by the transaction of another claim: {held:?}");
                drop(book);
                self.broken("4 one owner", text);
            }
            return;
        }
        let starts = story.starts;
        let attempt = task.attempt;
        let (started, came_of_it) = (held.started, held.came_of_it.clone());
        let life = held.life;
        let was_paused = book.was_paused(&task.kind, held.claimed_at);
        let is_stopping = book.lives.get(&life).is_some_and(|life| life.is_stopping);
        drop(book);
        let policy = &self.plan;
        let limit = task.max_attempts.unwrap_or(policy.max_attempts);
        let is_too_late = |margin: Duration| {
            let passed = |deadline| now.after(margin) > task.planned_at.after(deadline);
            // What a worker knows of the time may be from before a step.
            policy
                .deadline
                .is_some_and(|deadline| policy.steps > 0 || passed(deadline))
        };
        let is_followed = self.plan.is_followed(&task.kind) && task.key.is_some();
        let longest = policy.longest_pause(attempt);
        let has_failed = || match ending {
            Ending::Retry { after, .. } => attempt < limit && *after <= longest,
            Ending::Dead { give_back: false, .. } => {
                attempt >= limit && starts >= limit || is_too_late(longest)
            }
            _ => false,
        };
        let of_unstarted = || match ending {
            Ending::Release => is_stopping || was_paused,
            Ending::Moved { .. } | Ending::Cancelled | Ending::Snooze { .. } => is_followed,
            Ending::Dead { give_back: true, .. } => {
                task.attempt > limit && starts >= limit
                    || is_too_late(Duration::ZERO)
                    || task.stalls >= self.plan.max_stalls
            }
            _ => false,
        };
        let of_started = || match (&came_of_it, ending) {
            (None, _) => false,
            (Some(CameOfIt::Done), ending) => *ending == Ending::Done,
            (Some(CameOfIt::Again(asked)), Ending::Again { after, .. }) => after == asked,
            (Some(CameOfIt::Snoozed(asked)), Ending::Snooze { after, .. }) => after == asked,
            (Some(CameOfIt::Discarded), Ending::Dead { give_back, .. }) => !give_back,
            (Some(CameOfIt::Stopped | CameOfIt::Finished), Ending::Release) => is_stopping,
            (Some(CameOfIt::Failed | CameOfIt::TimedOut | CameOfIt::Finished), _) => has_failed(),
            _ => false,
        };
        // What the row says of them is what is left of the claim's attempts.
        let is_left = match ending {
            Ending::Again { .. } | Ending::Moved { .. } => after.attempt == 0,
            Ending::Snooze { .. }
            | Ending::Release
            | Ending::Cancelled
            | Ending::Dead { give_back: true, .. } => after.attempt + 1 == attempt,
            Ending::Done | Ending::Dead { .. } | Ending::Retry { .. } => after.attempt == attempt,
        };
        let is_right = is_left && if started { of_started() } else { of_unstarted() };
        if !is_right {
            let text = format!(
                "{task:?} ended by {ending:?} at {now}: started {started}, attempt {attempt}, {starts} starts of {limit}, \
                 {came_of_it:?}, and is {after:?}"
            );
            self.broken("9 endings", text);
        }
    }

    /// A lease has ended: not of a claim that its worker could have settled, and did not.
    pub(super) fn check_expiry(&self, task: &Task) {
        let mut wrong = None;
        {
            let book = self.book();
            let held = book
                .stories
                .get(&task.id)
                .and_then(|story| story.claims.get(&task.version));
            if let Some(held) = held
                && let Some(process) = book.lives.get(&held.life).filter(|life| life.is_alive)
                && let (Some(settling), Some(came_of_it)) = (held.settling, &held.came_of_it)
                && *came_of_it != CameOfIt::Stopped
                // Perhaps it never heard of this one.
                && held.lost.is_none()
            {
                let left_for = process.clock.instant() - settling;
                // Near its end, by its own reckoning, it may give up; and a call may hang for as long as calls may.
                let allowed =
                    SETTLES_AGAIN_WITHIN + self.plan.lease * 4 / 3 + delayline::defaults::STORE_TIMEOUT;
                if left_for > allowed {
                    wrong = Some(format!("{task:?} was left unsettled for {left_for:?}: {held:?}"));
                }
            }
        }
        if let Some(text) = wrong {
            self.broken("9 endings", text);
        }
    }
}
