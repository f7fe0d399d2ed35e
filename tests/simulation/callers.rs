//! What callers do: every verb, at random times, by id and by key, alone, in batches and in transactions.

use std::time::Duration;

use delayline::backend::{Backend, Departure, Wake};
use delayline::expected::Expected;
use delayline::store::{Expect, Page, Receipt, Store, Target, When};
use delayline::{Answer, Edit, Error, Key, NewTask, Scheduled, Scheduler, Shift, State, Task, TaskId};
use tokio::task::JoinSet;

use crate::gate::{GatedTransaction, Hearer};
use crate::ledger::Asked;
use crate::plan::{KEYS, KINDS, Precise};
use crate::process::Process;

/// Schedules this process's share of the tasks, then does one thing after the other.
/// `hearer` hears what the scheduler hears of the time.
pub(crate) async fn call(process: Process, scheduler: Scheduler, hearer: Hearer) {
    let plan = process.world.plan.clone();
    let caller = Caller {
        process,
        scheduler,
        hearer,
    };
    if let (Some(_), Some(_acting)) = (caller.process.script, caller.process.world.acting()) {
        // One after the other, or all at once and so in few calls of the store.
        let at_once = caller.below(2) == 0;
        let mut callers = JoinSet::new();
        for _ in 0..plan.tasks {
            let (caller, new) = (caller.clone(), caller.any_task());
            callers.spawn(async move { caller.schedule(new).await });
            if !at_once {
                callers.join_next().await;
            }
        }
        while callers.join_next().await.is_some() {}
    }
    let share = plan.actions / plan.processes.min(3);
    for _ in 0..share {
        let pause = Duration::from_millis(caller.below(millis(plan.longest)));
        caller.process.clock.sleep(pause).await;
        let Some(_acting) = caller.process.world.acting() else {
            return;
        };
        caller.act().await;
    }
}

/// A caller in a process: it uses verbs, and checks that the answers are true.
#[derive(Clone)]
struct Caller {
    process: Process,
    scheduler: Scheduler,
    hearer: Hearer,
}

/// A task that is to be scheduled, and what will be asked of the answer.
struct New {
    id: TaskId,
    kind: &'static str,
    key: Option<&'static str>,
    number: u64,
    due: When,
    replace: bool,
    max_attempts: Option<u32>,
}

impl New {
    fn task(&self) -> NewTask {
        let mut task = NewTask::new(self.kind, &self.number).id(self.id);
        task = match self.due {
            When::After(delay) => task.after(delay),
            When::At(time) => task.at(time),
        };
        if let Some(key) = self.key {
            task = task.key(key);
        }
        if self.replace {
            task = task.replace();
        }
        match self.max_attempts {
            Some(attempts) => task.max_attempts(attempts),
            None => task,
        }
    }

    fn asked(&self) -> Asked {
        Asked::Schedule {
            id: self.id,
            kind: self.kind.into(),
            key: self.key.map(Key::from),
            payload: self.number.to_string().into_bytes(),
            due: self.due,
            replace: self.replace,
        }
    }
}

impl Caller {
    fn below(&self, bound: u64) -> u64 {
        self.process.clock.random_below(bound)
    }

    fn delay(&self) -> Duration {
        let most = match self.below(4) {
            0 => 1_000,
            _ => millis(self.process.world.plan.longest),
        };
        Duration::from_millis(self.below(most))
    }

    fn due(&self) -> When {
        match self.below(4) {
            0 => When::At(self.process.world.ground.clock.now().after(self.delay())),
            // A time that has passed is now.
            1 if self.below(4) == 0 => When::At(self.process.world.ground.clock.now().shifted(-3_000)),
            _ => When::After(self.delay()),
        }
    }

    fn any_task(&self) -> New {
        let world = &self.process.world;
        let kind = KINDS[self.below(3) as usize];
        let keyed = world.plan.is_followed(&kind.into()) || self.below(3) == 0;
        let key = keyed.then(|| KEYS[self.below(3) as usize]);
        let due = self.due();
        let new = New {
            id: self.process.clock.new_id(),
            kind,
            key,
            number: world.ledger.number(),
            due,
            replace: self.below(2) == 0,
            max_attempts: (self.below(4) == 0).then(|| 1 + self.below(3) as u32),
        };
        self.tell_table(kind, key, due);
        new
    }

    /// The service keeps its own table, too.
    fn tell_table(&self, kind: &str, key: Option<&str>, due: When) {
        let world = &self.process.world;
        if let (true, Some(key)) = (world.plan.is_followed(&kind.into()), key) {
            let time = match due {
                When::After(delay) => world.ground.clock.now().after(delay),
                When::At(time) => time,
            };
            world.ledger.expects(&key.into(), Expected::At(time));
        }
    }

    /// Schedules, and asks again after an error, as everybody may.
    async fn schedule(&self, new: New) {
        let ledger = &self.process.world.ledger;
        let asked_at = ledger.elapsed();
        for _ in 0..3 {
            match self.scheduler.schedule(new.task()).await {
                Ok(scheduled) => return ledger.scheduled(&new.asked(), asked_at, &scheduled),
                Err(error) => self.failed("schedule", &error),
            }
            self.process.clock.sleep(Duration::from_millis(100)).await;
        }
    }

    fn failed(&self, what: &str, error: &Error) {
        let ledger = &self.process.world.ledger;
        ledger.note(|| format!("{what}: {error}"));
        if !error.is_transient() {
            ledger.broken("3 definite answers", format!("{what}: {error}"));
        }
    }

    /// Some task, by id or by key.
    fn target(&self) -> Option<(Target, Option<delayline::Task>)> {
        let world = &self.process.world;
        if self.below(3) == 0 {
            let (kind, key) = (KINDS[self.below(3) as usize], KEYS[self.below(3) as usize]);
            return Some((Target::from((kind, key)), None));
        }
        let rows = world.ground.rows();
        if rows.is_empty() {
            return None;
        }
        let row = rows[self.below(rows.len() as u64) as usize].clone();
        Some((Target::Id(row.id), Some(row)))
    }

    async fn act(&self) {
        match self.below(20) {
            0..=3 => self.schedule(self.any_task()).await,
            4 => self.schedule_all().await,
            5 => self.change_all().await,
            6..=9 => self.transact().await,
            10 => self.resend().await,
            11 => self.look().await,
            12 | 13 => self.move_in_table(),
            14 if !self.process.world.plan.calm => {
                // Goes away before it is answered.
                let limit = Duration::from_millis(self.below(6));
                self.process.clock.timeout(limit, self.change()).await;
            }
            _ => self.change().await,
        }
    }

    async fn change(&self) {
        let Some((target, row)) = self.target() else {
            return;
        };
        let scheduler = &self.scheduler;
        let by = self.delay();
        let state = row.as_ref().map(|row| row.state);
        let asked = match self.below(7) {
            0 => Asked::Cancel(target),
            1 => Asked::RunNow(target),
            2 => Asked::Reschedule(target, self.due()),
            6 => self.any_edit(target),
            3 => Asked::Shift(target, Shift::Later(by)),
            4 => Asked::Shift(target, Shift::Earlier(by)),
            _ if self.below(4) == 0 => Asked::Dismiss(target),
            _ if state == Some(State::Dead) || self.below(4) == 0 => Asked::Redrive(target),
            _ => Asked::Reschedule(target, self.due()),
        };
        self.tell_table_of(&asked);
        let ledger = &self.process.world.ledger;
        let asked_at = ledger.elapsed();
        let answer = match asked.clone() {
            Asked::Cancel(target) => scheduler.cancel(target).await,
            Asked::RunNow(target) => scheduler.run_now(target).await,
            Asked::Reschedule(target, due) => scheduler.reschedule(target, due).await,
            Asked::Shift(target, by) => match row {
                Some(row) if self.below(2) == 0 => {
                    let expect = match self.below(2) {
                        0 => Expect::Due(row.due_at),
                        _ => Expect::Version(row.version),
                    };
                    scheduler.shift_if(target, expect, by).await
                }
                _ => scheduler.shift(target, by).await,
            },
            Asked::Edit(target, number, due) => scheduler.edit(target, edit(number, due)).await,
            Asked::Dismiss(target) => scheduler.dismiss(target).await,
            Asked::Redrive(target) => scheduler.redrive(target).await,
            Asked::Schedule { .. } => return,
        };
        match answer {
            Ok(answer) => ledger.changed(&asked, asked_at, &answer),
            Err(error) => self.failed("change", &error),
        }
    }

    fn any_edit(&self, target: Target) -> Asked {
        let number = self.process.world.ledger.number();
        let due = (self.below(3) == 0).then(|| self.due());
        Asked::Edit(target, number, due)
    }

    /// A caller that moves a task that follows the table mostly writes the time there, too.
    fn tell_table_of(&self, asked: &Asked) {
        let world = &self.process.world;
        let (target, due) = match asked {
            Asked::Reschedule(target, due) => (target, *due),
            Asked::Edit(target, _, Some(due)) => (target, *due),
            Asked::RunNow(target) | Asked::Redrive(target) => (target, When::After(Duration::ZERO)),
            _ => return,
        };
        let row = match target {
            Target::Id(id) => world.ground.row(id.to_owned()),
            Target::Key(kind, key) => {
                return self.tell_table(kind.as_str(), Some(key.as_str()), due);
            }
        };
        if let Some(row) = row.filter(|_| self.below(4) > 0) {
            self.tell_table(row.kind.as_str(), row.key.as_ref().map(Key::as_str), due);
        }
    }

    /// Changes the service's table by hand, as an operator does.
    fn move_in_table(&self) {
        let world = &self.process.world;
        if !world.plan.follows {
            return;
        }
        let expected = match self.below(5) {
            0 => Expected::Gone,
            1 => Expected::Run,
            _ => Expected::At(world.ground.clock.now().after(self.delay())),
        };
        world
            .ledger
            .expects(&KEYS[self.below(3) as usize].into(), expected);
    }

    async fn schedule_all(&self) {
        let ledger = &self.process.world.ledger;
        let batch: Vec<_> = (0..1 + self.below(4)).map(|_| self.any_task()).collect();
        let asked_at = ledger.elapsed();
        match self.scheduler.schedule_all(batch.iter().map(New::task)).await {
            Ok(answers) if answers.len() == batch.len() => {
                for (new, answer) in batch.iter().zip(&answers) {
                    ledger.scheduled(&new.asked(), asked_at, answer);
                }
            }
            Ok(answers) => ledger.broken("3 definite answers", format!("{} answers", answers.len())),
            Err(error) => self.failed("schedule all", &error),
        }
    }

    async fn change_all(&self) {
        let ledger = &self.process.world.ledger;
        let targets: Vec<_> = (0..3)
            .filter_map(|_| self.target())
            .map(|(target, _)| target)
            .collect();
        let asked_at = ledger.elapsed();
        let cancels = self.below(2) == 0;
        let (asked, answers): (Vec<_>, _) = if cancels {
            let asked = targets.iter().cloned().map(Asked::Cancel).collect();
            (asked, self.scheduler.cancel_all(targets).await)
        } else {
            let moves: Vec<_> = targets.into_iter().map(|target| (target, self.due())).collect();
            let asked = moves
                .iter()
                .map(|(target, due)| Asked::Reschedule(target.clone(), *due))
                .collect();
            (asked, self.scheduler.reschedule_all(moves).await)
        };
        match answers {
            Ok(answers) => {
                for (asked, answer) in asked.iter().zip(&answers) {
                    ledger.changed(asked, asked_at, answer);
                }
            }
            Err(error) => self.failed("change all", &error),
        }
    }

    /// A transaction of the service's own: some verbs, then the commit or not, then the receipts or not.
    async fn transact(&self) {
        let mut transaction = GatedTransaction::begin(&self.process.gate, self.hearer);
        let asked_at = self.process.world.ledger.elapsed();
        let mut scheduled: Vec<(Asked, Receipt<Scheduled>)> = Vec::new();
        let mut changed: Vec<(Asked, Receipt<Answer>)> = Vec::new();
        for _ in 0..1 + self.below(3) {
            let tried = match self.below(3) {
                0 => {
                    let new = self.any_task();
                    let receipt = self.scheduler.schedule_in(&mut transaction, new.task()).await;
                    receipt.map(|receipt| scheduled.push((new.asked(), receipt)))
                }
                _ => self
                    .change_in(&mut transaction)
                    .await
                    .map(|done| changed.extend(done)),
            };
            if let Err(error) = tried {
                // Such as a lock: the service rolls back.
                return self.failed("in a transaction", &error);
            }
            let dallies =
                self.below(4) == 0 && !self.process.world.plan.calm && !self.process.world.is_healed();
            if dallies {
                self.process
                    .clock
                    .sleep(Duration::from_millis(self.below(3_000)))
                    .await;
            }
        }
        if self.below(4) == 0 {
            // Rolled back; what the receipts say is not so, and nothing follows.
            return;
        }
        if let Err(error) = transaction.commit().await {
            // Perhaps it was committed: then the sweep finds what is left to do.
            return self.failed("commit", &error);
        }
        let keeps = self.below(4) > 0 || self.process.world.plan.calm;
        let ledger = &self.process.world.ledger;
        for (asked, receipt) in scheduled {
            let answer = match keeps {
                true => self.scheduler.committed(receipt).await,
                false => receipt.answer().clone(),
            };
            if !is_superseded(&answer.task().id, &changed) {
                ledger.scheduled(&asked, asked_at, &answer);
            }
        }
        for (asked, receipt) in changed {
            let answer = match keeps {
                true => self.scheduler.committed(receipt).await,
                false => receipt.answer().clone(),
            };
            if answer.is_done() {
                ledger.changed(&asked, asked_at, &answer);
            }
        }
    }

    async fn change_in(
        &self,
        transaction: &mut GatedTransaction,
    ) -> Result<Option<(Asked, Receipt<Answer>)>, Error> {
        let Some((target, _)) = self.target() else {
            return Ok(None);
        };
        let asked = match self.below(5) {
            0 => Asked::Cancel(target),
            1 => Asked::RunNow(target),
            2 => Asked::Shift(target, Shift::Later(self.delay())),
            4 => self.any_edit(target),
            _ => Asked::Reschedule(target, self.due()),
        };
        self.tell_table_of(&asked);
        let scheduler = &self.scheduler;
        let receipt = match asked.clone() {
            Asked::Cancel(target) => scheduler.cancel_in(transaction, target).await?,
            Asked::RunNow(target) => scheduler.run_now_in(transaction, target).await?,
            Asked::Shift(target, by) => scheduler.shift_in(transaction, target, by).await?,
            Asked::Edit(target, number, due) => {
                scheduler.edit_in(transaction, target, edit(number, due)).await?
            }
            Asked::Reschedule(target, due) => scheduler.reschedule_in(transaction, target, due).await?,
            _ => return Ok(None),
        };
        Ok(Some((asked, receipt)))
    }

    /// Wake-ups once more, for a backend that may have lost them.
    async fn resend(&self) {
        if self.process.world.plan.precise == Precise::Table {
            return;
        }
        let Some(backend) = self.process.backend("precise", true) else {
            return;
        };
        let store = crate::gate::GatedStore(self.process.gate.clone(), Hearer::Other);
        let limit = Duration::from_secs(5);
        let resent = self.process.clock.timeout(limit, resend(&store, &*backend)).await;
        if let Some(Err(error)) = resent {
            self.failed("resend", &error);
        }
    }

    /// Finds and lists: each shows what is there.
    async fn look(&self) {
        let world = &self.process.world;
        let Some((target, _)) = self.target() else {
            return;
        };
        match self.scheduler.find(target.clone()).await {
            Ok(found) => world
                .ledger
                .note(|| format!("found {:?}", found.map(|task| task.version))),
            Err(error) => self.failed("find", &error),
        }
        let page = Page::new(KINDS[self.below(3) as usize], State::Dead).limit(3);
        if let Err(error) = self.scheduler.list(&page).await {
            self.failed("list", &error);
        }
    }
}

fn edit(number: u64, due: Option<When>) -> Edit {
    match due {
        None => Edit::payload(&number),
        Some(When::After(delay)) => Edit::payload(&number).after(delay),
        Some(When::At(time)) => Edit::payload(&number).at(time),
    }
}

/// Whether a later verb of the same transaction has changed the task: then the version before was never seen.
fn is_superseded(id: &TaskId, changed: &[(Asked, Receipt<Answer>)]) -> bool {
    let mut later = changed.iter().filter_map(|(_, receipt)| receipt.answer().task());
    later.any(|task| task.id == *id)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap()
}

/// Sends a wake-up for every scheduled row that one page shows of its kind.
async fn resend(store: &dyn Store, backend: &dyn Backend) -> Result<(), Error> {
    for kind in KINDS {
        let rows = store.list(&Page::new(kind, State::Scheduled)).await?;
        let now = store.now().await?;
        let departure = |row: Task| Departure {
            delay: Duration::from_millis(u64::try_from(row.due_at.millis_since(now)).unwrap_or(0)),
            wake: Wake {
                id: row.id,
                kind: row.kind,
                version: row.version,
            },
        };
        let batch: Vec<_> = rows.into_iter().map(departure).collect();
        backend.send(&batch).await.map_err(|refused| refused.cause)?;
    }
    Ok(())
}
