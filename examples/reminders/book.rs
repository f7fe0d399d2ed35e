//! The book of appointments, and the reminders of each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::store::{SqliteStore, Store};
use delayline::{Answer, Context, Failure, NewTask, Outcome, Scheduled, Scheduler, Worker};
use jiff::{Span, ToSpan, Zoned};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::info;

use crate::Error;
use crate::calendar::{is_night, reminder};
use crate::pace::Pace;

/// Binds a task to its handler. It is stored with each task, so it must stay the same from release to release.
const REMIND: &str = "appointment.remind";

pub(crate) const A_DAY: &str = "a day before";

/// How long to wait before looking again.
const A_MOMENT: Duration = Duration::from_millis(20);

/// How long before an appointment customers are reminded, each under a name of its own.
fn reminders() -> [(&'static str, Span); 2] {
    [(A_DAY, 1.day()), ("2 hours before", 2.hours())]
}

/// The key of an appointment and one of its reminders: so each has a task of its own, and is moved with it.
fn key(appointment: &str, name: &str) -> String {
    format!("{appointment}, {name}")
}

pub(crate) struct Book {
    store: Arc<SqliteStore>,
    scheduler: Scheduler,
    pace: Pace,
    expected: Arc<Expected>,
}

impl Book {
    pub(crate) fn open(store: Arc<SqliteStore>, pace: Pace) -> Result<Self, Error> {
        let scheduler = Scheduler::builder(store.clone()).build()?;
        Ok(Self {
            store,
            scheduler,
            pace,
            expected: Arc::default(),
        })
    }

    pub(crate) fn expected(&self) -> &Expected {
        &self.expected
    }

    /// Adds an appointment, or moves it: its reminders go with it. A reminder whose time has passed is left out.
    pub(crate) async fn put(&self, appointment: &str, at: &Zoned) -> Result<(), Error> {
        let now = self.store.now().await?;
        let (mut planned, mut passed) = (Vec::new(), Vec::new());
        for (name, before) in reminders() {
            let key = key(appointment, name);
            let when = reminder(at, before)?;
            if self.pace.real(&when) <= now {
                info!("{key}: {when} has gone by");
                passed.push(key);
            } else {
                info!("{key}: to be told at {when}");
                planned.push((key, when));
            }
        }
        self.schedule(planned).await?;
        self.cancel(passed).await
    }

    /// Schedules reminders, or moves them. One that is being sent at this moment cannot be moved, which the answer says: it is
    /// scheduled anew once it was sent.
    async fn schedule(&self, mut planned: Vec<(String, Zoned)>) -> Result<(), Error> {
        loop {
            let task = |(key, when): &(String, Zoned)| {
                let due = self.pace.real(when);
                NewTask::new(REMIND, &when.to_string())
                    .key(key.clone())
                    .at(due)
                    .replace()
            };
            let answers = self.scheduler.schedule_all(planned.iter().map(task)).await?;
            let mut running = Vec::new();
            for ((key, when), answer) in planned.into_iter().zip(answers) {
                match answer {
                    Scheduled::Running(_) => running.push((key, when)),
                    Scheduled::Replaced(_) => self.expected.moved(key, when),
                    Scheduled::New(_) | Scheduled::Existing(_) => self.expected.planned(key, when),
                }
            }
            if running.is_empty() {
                return Ok(());
            }
            planned = running;
            tokio::time::sleep(A_MOMENT).await;
        }
    }

    /// Cancels an appointment. No reminder of it is sent once this has returned, but for one that is being sent already.
    pub(crate) async fn strike(&self, appointment: &str) -> Result<(), Error> {
        let keys = reminders().map(|(name, _)| key(appointment, name));
        self.cancel(keys.into()).await?;
        info!("{appointment}: struck out");
        Ok(())
    }

    async fn cancel(&self, keys: Vec<String>) -> Result<(), Error> {
        let targets = keys.iter().map(|key| (REMIND, key.as_str()).into());
        let answers = self.scheduler.cancel_all(targets).await?;
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Answer::Done(_) => self.expected.cancelled(key),
                Answer::TooLate(_) => info!("{key}: too late, it is being told"),
                Answer::Finished(_) | Answer::Conflict(_) | Answer::NotFound => {}
            }
        }
        Ok(())
    }

    /// Waits until the reminder of this name was sent for an appointment.
    pub(crate) async fn until_told(&self, appointment: &str, name: &str) {
        while self.expected.waits(&key(appointment, name)) {
            tokio::time::sleep(A_MOMENT).await;
        }
    }

    /// Waits until every reminder was sent.
    pub(crate) async fn all_told(&self) {
        while !self.expected.is_complete() {
            tokio::time::sleep(A_MOMENT).await;
        }
    }

    /// Runs the worker that sends reminders, until it is stopped.
    pub(crate) fn work(&self) -> Working {
        let (expected, pace) = (Arc::clone(&self.expected), self.pace);
        let remind = move |when: String, context: Context| {
            let expected = Arc::clone(&expected);
            async move {
                let when: Zoned = when.parse()?;
                let key = context.key().ok_or("a reminder has a key")?.to_owned();
                info!("{key}: it is {when}");
                // The times in the row and in the payload were written together.
                let is_in_time = context.task().due_at == pace.real(&when);
                expected.told(key, when, is_in_time);
                Ok::<_, Failure>(Outcome::Done)
            }
        };
        let worker = Worker::new(&self.scheduler).handle(REMIND, remind);
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
        Working { stop, worker }
    }
}

/// A worker in the background.
pub(crate) struct Working {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), delayline::Error>>,
}

impl Working {
    pub(crate) async fn stop(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        Ok(self.worker.await??)
    }
}

/// The reminders that were planned and those that were sent, to be compared at the end.
#[derive(Debug, Default)]
pub(crate) struct Expected(Mutex<Reminders>);

#[derive(Debug, Default)]
struct Reminders {
    /// By the answers of the scheduler.
    planned: Vec<(String, Zoned)>,
    /// By the handler.
    told: Vec<(String, Zoned)>,
    /// Sent at night, or for another time than that of the task.
    wrong: Vec<String>,
}

impl Reminders {
    fn waiting(&self) -> impl Iterator<Item = &(String, Zoned)> {
        self.planned
            .iter()
            .filter(|reminder| !self.told.contains(reminder))
    }
}

impl Expected {
    fn planned(&self, key: String, when: Zoned) {
        self.lock().planned.push((key, when));
    }

    fn moved(&self, key: String, when: Zoned) {
        self.cancelled(&key);
        self.planned(key, when);
    }

    /// Takes back what was planned last for this key.
    fn cancelled(&self, key: &str) {
        let planned = &mut self.lock().planned;
        let last = planned.iter().rposition(|(of, _)| of == key);
        last.map(|last| planned.remove(last));
    }

    fn told(&self, key: String, when: Zoned, is_in_time: bool) {
        let mut reminders = self.lock();
        if is_night(&when) || !is_in_time {
            reminders.wrong.push(format!("{key} at {when}"));
        }
        reminders.told.push((key, when));
    }

    fn waits(&self, key: &str) -> bool {
        self.lock().waiting().any(|(of, _)| of == key)
    }

    fn is_complete(&self) -> bool {
        self.lock().waiting().next().is_none()
    }

    /// Counts the sent reminders; an error unless each was sent as planned.
    pub(crate) fn settle(&self) -> Result<usize, Error> {
        let mut reminders = self.lock();
        reminders.planned.sort();
        reminders.told.sort();
        match reminders.wrong.is_empty() && reminders.planned == reminders.told {
            true => Ok(reminders.told.len()),
            false => Err(format!("not as planned: {reminders:?}").into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reminders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
