//! Handlers: may they start, do they stop, and what came of them.

use std::sync::Arc;
use std::time::Duration;

use delayline::clock::Clock;
use delayline::expected::Expected;
use delayline::store::Ending;
use delayline::{Context, State, Task};

use super::{Ledger, short};
use crate::ground::Ground;
use crate::model::Cause;

/// What came of a handler that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CameOfIt {
    Done,
    /// It answered done, after it finished the task in a transaction that may not have been committed.
    Finished,
    Failed,
    Snoozed(Duration),
    Again(Duration),
    Discarded,
    TimedOut,
    /// It was stopped, and not for its execution timeout.
    Stopped,
}

/// A handler that runs; says what came of it, at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct Handling {
    ledger: Arc<Ledger>,
    life: u64,
    clock: Clock,
    began: tokio::time::Instant,
    task: Task,
    came_of_it: Option<CameOfIt>,
}

impl Handling {
    /// A handler starts: is it its time, and is it this worker's to start?
    pub(crate) fn begin(ground: &Ground, life: u64, clock: &Clock, context: &Context) -> Self {
        let ledger = Arc::clone(&ground.ledger);
        let task = context.task().clone();
        ledger.check_start(ground, life, &task);
        Self {
            ledger,
            life,
            clock: clock.clone(),
            began: clock.instant(),
            task,
            came_of_it: None,
        }
    }

    /// From now on, or no longer, the task may be done by a transaction of its handler's.
    pub(crate) fn finishes(&self, finishing: bool) {
        let mut book = self.ledger.book();
        let story = book.stories.entry(self.task.id).or_default();
        if let Some(held) = story.claims.get_mut(&self.task.version) {
            held.finishing = finishing;
        }
    }

    pub(crate) fn came_of_it(&mut self, came_of_it: CameOfIt) {
        self.came_of_it = Some(came_of_it);
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        let ran = self.clock.instant() - self.began;
        let timeout = self.ledger.plan.timeout;
        let came_of_it = self.came_of_it.take();
        let is_over = came_of_it.is_none() && ran >= timeout;
        let came_of_it = came_of_it.unwrap_or(if is_over {
            CameOfIt::TimedOut
        } else {
            CameOfIt::Stopped
        });
        self.ledger.ended(self.life, &self.task, came_of_it, ran);
    }
}

/// How long a handler may go on that is to be stopped: to its next await.
const STOPS_WITHIN: Duration = Duration::from_millis(10);

/// How late a task may start once nothing goes wrong any more, beyond the pause of the sweep: what the sweep retakes waits a
/// second, a timer is 1.2 s late, and each wake-up, claim and handler before it takes its time.
const LATE_AT_THE_MOST: Duration = Duration::from_secs(6);

/// Whether a version came about by what workers do by themselves.
fn is_of_workers(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::Hopped | Cause::Claimed | Cause::Expired | Cause::Settled(Ending::Moved { .. })
    )
}

impl Ledger {
    fn check_start(&self, ground: &Ground, life: u64, task: &Task) {
        let (at, now) = (self.elapsed(), ground.clock.now());
        self.note(|| {
            format!(
                "start: {} v{} attempt {} by {life}",
                short(task.id),
                task.version,
                task.attempt
            )
        });
        let row = ground.row(task.id);
        let mut wrong: Vec<(&'static str, String)> = Vec::new();
        let mut book = self.book();
        book.starts += 1;
        let highest = book.highest.map_or(now, |highest| highest.max(now));
        if highest < task.due_at {
            wrong.push(("1 never early", format!("{task:?} started at {now}")));
        }
        if let Some(pause) = book.forbids(&task.kind, at) {
            wrong.push(("3 definite answers", format!("{task:?} started in {pause:?}")));
        }
        let steps = book.steps.clone();
        let is_followed = self.plan.is_followed(&task.kind);
        let asked = task
            .key
            .clone()
            .and_then(|key| book.asked.get(&(life, key)).copied());
        let healed = book.healed;
        let expected = task.key.clone().and_then(|key| book.tables.get(&key).copied());
        let lives = &mut book.lives;
        let process = lives.get_mut(&life).expect("it was born");
        if let Some(other) = process.running.insert(task.id, task.version) {
            wrong.push((
                "4 one owner",
                format!("{task:?} started while its handler for v{other} runs"),
            ));
        }
        let (_, heard) = process.heard;
        let heard_after = process.heard_after.clone();
        let ahead = |steps_made: usize| steps_made.checked_sub(1).map_or(0, |last| steps[last]);
        // A worker that has not heard of a step goes by the time that it would be without.
        let believed = now.shifted(ahead(heard) - ahead(steps.len()));
        let story = book.stories.entry(task.id).or_default();
        let owned = row
            .as_ref()
            .is_some_and(|row| row.version == task.version && row.state == State::Running);
        match story.claims.get_mut(&task.version) {
            None => wrong.push(("4 one owner", format!("{task:?} started and was never claimed"))),
            Some(held) => {
                if held.life != life || held.started {
                    wrong.push((
                        "4 one owner",
                        format!("{task:?} started by process {life}: {held:?}"),
                    ));
                }
                story.starts += u32::from(!std::mem::replace(&mut held.counted, true));
                (held.started, held.came_of_it, held.settling) = (true, None, None);
                if at >= held.lease_until {
                    wrong.push((
                        "4 one owner",
                        format!("{task:?} started after its lease: {held:?}"),
                    ));
                }
                // A step of the store's clock forwards ends leases, and a worker knows of it if the answer that it goes by was
                // given while the clock was as far ahead as it has been since the lease was given: not if it has heard nothing
                // since, nor if it has heard the store again only when the clock was back.
                let furthest_since = |made| (made..=steps.len()).map(ahead).max().unwrap_or(0);
                let ends_unheard = |given| furthest_since(given) > ahead(given).max(ahead(heard));
                // A lease that was mended while the clock was behind ends by a smaller step; then it must have heard of the time
                // in between.
                let is_mended_unheard =
                    |mended| furthest_since(mended) > ahead(mended) && ahead(heard) > ahead(mended);
                // A renewal does not say by which time it was given: where nothing else was heard while the clock was so, it
                // is taken for one by the time before.
                let is_given_unheard = !heard_after.contains(&held.given_after)
                    && furthest_since(held.given_after) > ahead(held.given_after);
                let is_excused = ends_unheard(held.given_after)
                    || is_given_unheard
                    || held.mended_after.is_some_and(is_mended_unheard);
                if !owned && !is_excused {
                    let check = match task.version <= story.fence {
                        true => "3 definite answers",
                        false => "4 one owner",
                    };
                    wrong.push((check, format!("{task:?} started while its row is {row:?}")));
                }
                if is_followed && task.key.is_some() {
                    let allowed = asked.is_some_and(|(asked_at, expected)| {
                        asked_at >= held.claimed_at
                            && match expected {
                                Expected::Run => true,
                                Expected::At(time) => {
                                    time <= highest.max(believed) || time == task.planned_at
                                }
                                _ => false,
                            }
                    });
                    if !allowed {
                        wrong.push((
                            "8 the table decides",
                            format!("{task:?} started, and was told {asked:?}"),
                        ));
                    }
                }
            }
        }
        match story.versions.get(&task.version) {
            Some(seen) if seen.task == *task => {}
            seen => wrong.push(("4 one owner", format!("{task:?} started and is {seen:?}"))),
        }
        // Since when could it have started? Its version before is the one that was scheduled.
        let scheduled = story.versions.range(..task.version).rev();
        let scheduled = scheduled
            .take_while(|(_, seen)| seen.task.state == State::Scheduled && seen.task.due_at == task.due_at);
        let since = scheduled.last().map_or(at, |(_, seen)| seen.at);
        // Since when is it as its callers, or the table when it was noticed in time, have left it?
        let mut before = story.versions.range(..task.version).rev();
        let left = before.find(|(_, seen)| !is_of_workers(&seen.cause));
        let left = left.map_or(at, |(_, seen)| seen.at);
        drop(book);
        if let (true, true, Some((Expected::At(time), changed))) = (self.plan.calm, is_followed, expected)
            && task.attempt == 1
        {
            // Where nothing goes wrong, it is noticed at the next wake-up, and those are kept short.
            let late = Duration::from_millis(u64::try_from(now.millis_since(time)).unwrap_or(0));
            let late = late.min(at - changed).min(at - left);
            if late > self.plan.every + LATE_AT_THE_MOST + self.plan.sweep_every {
                wrong.push((
                    "8 the table decides",
                    format!("{task:?} started {late:?} after the table had said {time}"),
                ));
            }
        }
        // A row that was written by an older time than the store's is looked at later: so where the clock was stepped.
        if let Some(healed) = healed.filter(|_| self.plan.steps == 0) {
            self.check_lateness(
                task,
                since.max(healed + self.plan.recovery()),
                at,
                now,
                &mut wrong,
            );
            if let (true, Some((Expected::At(time), changed))) = (is_followed, expected)
                && task.attempt == 1
            {
                let noticed = changed.max(healed + self.plan.recovery()) + self.plan.every;
                let late = now.millis_since(time);
                let since_noticed = at.saturating_sub(noticed + LATE_AT_THE_MOST + self.plan.sweep_every);
                let bound =
                    i64::try_from((LATE_AT_THE_MOST + self.plan.sweep_every + self.plan.every).as_millis())
                        .unwrap();
                if task.planned_at == time
                    && late > bound
                    && since_noticed > Duration::ZERO
                    && time.millis_since(task.created_at) > 0
                {
                    wrong.push((
                        "8 the table decides",
                        format!("{task:?} started {late} ms after {time}"),
                    ));
                }
            }
        }
        for (check, text) in wrong {
            self.broken(check, text);
        }
    }

    /// Once nothing goes wrong any more, nothing is late.
    fn check_lateness(
        &self,
        task: &Task,
        since: Duration,
        at: Duration,
        now: delayline::Timestamp,
        wrong: &mut Vec<(&'static str, String)>,
    ) {
        let late = u64::try_from(now.millis_since(task.due_at)).unwrap_or(0);
        let late = Duration::from_millis(late).min(at.saturating_sub(since));
        if late > LATE_AT_THE_MOST + self.plan.sweep_every {
            wrong.push((
                "6 lateness",
                format!("{task:?} started {late:?} late, though nothing was wrong"),
            ));
        }
    }

    /// A handler has ended, or was stopped.
    fn ended(&self, life: u64, task: &Task, came_of_it: CameOfIt, ran: Duration) {
        self.note(|| format!("ended: {} v{} {came_of_it:?}", short(task.id), task.version));
        let timeout = self.plan.timeout;
        let mut wrong = None;
        {
            let mut book = self.book();
            let Some(process) = book.lives.get_mut(&life) else {
                return;
            };
            process
                .running
                .retain(|id, version| (*id, *version) != (task.id, task.version));
            let (is_alive, now) = (process.is_alive, process.clock.instant());
            let story = book.stories.entry(task.id).or_default();
            if let Some(held) = story.claims.get_mut(&task.version) {
                if is_alive && held.lost.is_some_and(|told| now - told > STOPS_WITHIN) {
                    wrong = Some((
                        "4 one owner",
                        format!("{task:?} ran on after its claim was lost: {held:?}"),
                    ));
                }
                held.settling = Some(now);
                held.came_of_it = Some(came_of_it);
            }
            if is_alive && ran > timeout + STOPS_WITHIN {
                wrong = Some((
                    "9 endings",
                    format!("{task:?} ran for {ran:?}, allowed are {timeout:?}"),
                ));
            }
        }
        if let Some((check, text)) = wrong {
            self.broken(check, text);
        }
    }

    /// A process was told that a claim is lost: its handler is to be stopped.
    pub(crate) fn told_lost(&self, life: u64, id: delayline::TaskId, version: u64) {
        let mut book = self.book();
        let now = book.lives.get(&life).map(|process| process.clock.instant());
        let story = book.stories.entry(id).or_default();
        // What a transaction of its own has finished is done, and not lost.
        let is_done = story
            .versions
            .get(&(version + 1))
            .is_some_and(|seen| seen.task.state == State::Done);
        if let Some(held) = story.claims.get_mut(&version)
            && held.life == life
            && held.came_of_it.is_none()
            && !held.finishing
            && !is_done
        {
            held.lost = held.lost.or(now);
        }
    }

    /// At the end: no handler runs whose claim was lost long ago.
    pub(super) fn check_lost(&self) {
        let mut wrong = Vec::new();
        {
            let book = self.book();
            for (id, story) in &book.stories {
                for held in story.claims.values() {
                    let process = &book.lives[&held.life];
                    let runs_on = held
                        .lost
                        .is_some_and(|told| process.clock.instant() - told > STOPS_WITHIN);
                    if held.started && held.came_of_it.is_none() && process.is_alive && runs_on {
                        wrong.push(format!("{id} runs on after its claim was lost: {held:?}"));
                    }
                }
            }
        }
        for text in wrong {
            self.broken("4 one owner", text);
        }
    }
}
