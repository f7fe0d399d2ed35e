//! What has become of a task, and what comes next.

use super::Scheduler;
use crate::history::{Entry, Explanation, WakeUp};
use crate::store::{Noted, Target};
use crate::task::timestamp::{duration, millis};
use crate::{Error, State, Task, Timestamp};

/// How often a task is read again that changes while it is read.
const TRIES: usize = 3;

impl Scheduler {
    /// Where a task stands, what has happened to it, where its wake-up is, and what comes next; by key of the live task,
    /// else of the one that was made last. Nothing if there is none.
    ///
    /// What has happened, and where the wake-up is, is known as far as it was [noted](crate::SchedulerBuilder::history).
    /// What comes next is as this scheduler would send it: to be asked of one that has the backends of those that do.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use delayline::store::{History, MemoryStore};
    /// use delayline::{NewTask, Scheduler};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let store = Arc::new(MemoryStore::new());
    /// let scheduler = Scheduler::builder(store).history(History::Changes).build()?;
    /// let unpaid = NewTask::new("order.cancel", &42).key("42").after(Duration::from_secs(900));
    /// scheduler.by("api:shop").schedule(unpaid).await?;
    /// scheduler.by("cli").because("paid by phone").cancel(("order.cancel", "42")).await?;
    ///
    /// let explained = scheduler.explain(("order.cancel", "42")).await?.expect("it is there");
    /// let last = explained.history.last().expect("it was cancelled");
    /// assert_eq!((last.event.as_str(), last.reason.as_deref()), ("cancelled", Some("paid by phone")));
    /// assert!(explained.words[0].starts_with("Cancelled at "), "{explained:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn explain(&self, target: impl Into<Target>) -> Result<Option<Explanation>, Error> {
        let target = target.into();
        target.check()?;
        let Some((task, noted)) = self.noted(&target).await? else {
            return Ok(None);
        };
        let kernel = &self.kernel;
        let now = kernel.time.ask(&*kernel.store).await?.now(kernel.clock.instant());
        let mut pauses = self.paused().await?.into_iter();
        let (history, is_cut) = noted.entries();
        let wake = history.last().and_then(|last| self.wake_up(&task, last));
        // What another process has sent on a way that is none of this one's goes on by the ways of others.
        let mut backends = kernel.router.backends();
        let is_ours = wake
            .as_ref()
            .is_none_or(|wake| backends.any(|(_, backend)| backend.name() == wake.leg.backend));
        let from = wake.as_ref().map_or(now, |wake| wake.arrives_at.max(now));
        let plan = match task.state {
            State::Scheduled if is_ours => {
                let remaining = duration(task.due_at.millis_since(from));
                Some(kernel.router.legs(&task.kind, remaining))
            }
            _ => None,
        };
        let mut explanation = Explanation {
            now,
            paused: pauses.find(|paused| paused.kind == task.kind),
            task,
            history,
            is_cut,
            wake,
            plan,
            words: Vec::new(),
        };
        explanation.words = explanation.in_words();
        Ok(Some(explanation))
    }

    /// The wake-up of a scheduled task: the one that its last entry tells of. Or, where only hops came after it, which need not
    /// be noted, the one that this scheduler would have sent by then, if that is overdue when the row says.
    fn wake_up(&self, task: &Task, last: &Entry) -> Option<WakeUp> {
        let hops = task.version.checked_sub(last.version)?;
        let noted = last.wake.clone().filter(|_| task.state == State::Scheduled)?;
        if hops == 0 {
            return Some(WakeUp::sent(noted, last.at));
        }
        let router = &self.kernel.router;
        let remaining = |at: Timestamp| duration(task.due_at.millis_since(at));
        let legs = router.legs(&task.kind, remaining(last.at));
        let (before, rest) = legs.split_at_checked(usize::try_from(hops).ok()?)?;
        let leg = rest.first()?;
        let punctual = before.iter().fold(last.at, |at, leg| at.after(leg.delay));
        let (overdue_after, _) = router.way(Some(&task.kind), remaining(punctual));
        let since = task.wake_at?.shifted(-millis(overdue_after));
        let is_so = router.way(Some(&task.kind), remaining(since)) == (overdue_after, Some(leg.clone()));
        (is_so && legs.first() == Some(&noted) && since >= punctual).then(|| WakeUp::sent(leg.clone(), since))
    }

    /// A task and what was [noted](crate::SchedulerBuilder::history) of it until then, the oldest first; by key of the live
    /// task, else of the one that was made last. Nothing if there is none.
    ///
    /// [`explain`](Self::explain) tells more, and asks the store for more.
    pub async fn history(&self, target: impl Into<Target>) -> Result<Option<(Task, Vec<Entry>)>, Error> {
        let target = target.into();
        target.check()?;
        let noted = self.noted(&target).await?;
        Ok(noted.map(|(task, noted)| (task, noted.entries().0)))
    }

    /// A task, and what is noted of it as it is then, unless it changes all the time.
    async fn noted(&self, target: &Target) -> Result<Option<(Task, Noted)>, Error> {
        let store = &self.kernel.store;
        let Some(mut task) = store.find(target).await? else {
            return Ok(None);
        };
        for _ in 0..TRIES {
            let noted = store.history(task.id).await?;
            let Some(again) = store.find(&Target::Id(task.id)).await? else {
                return Ok(None);
            };
            if again.version == task.version {
                return Ok(Some((again, noted)));
            }
            task = again;
        }
        let noted = store.history(task.id).await?;
        Ok(Some((task, noted)))
    }
}
