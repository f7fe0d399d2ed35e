//! The book of appointments, and the reminders of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::store::{SqliteStore, Store};
use delayline::{Context, Failure, NewTask, Outcome, Scheduler, Worker};
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
        let (mut tasks, mut passed) = (Vec::new(), Vec::new());
        for (name, before) in reminders() {
            let key = key(appointment, name);
            let when = reminder(at, before)?;
            let due = self.pace.real(&when);
            if due <= now {
                info!("{key}: {when} has gone by");
                passed.push((REMIND, key.clone()).into());
                self.expected.forget(&key);
                continue;
            }
            info!("{key}: to be told at {when}");
            tasks.push(
                NewTask::new(REMIND, &when.to_string())
                    .key(key.clone())
                    .at(due)
                    .replace(),
            );
            self.expected.put(key, when);
        }
        self.scheduler.schedule_all(tasks).await?;
        self.scheduler.cancel_all(passed).await?;
        Ok(())
    }

    /// Cancels an appointment. No reminder of it is sent once this has returned.
    pub(crate) async fn strike(&self, appointment: &str) -> Result<(), Error> {
        let keys = reminders().map(|(name, _)| key(appointment, name));
        let cancels = keys.iter().map(|key| (REMIND, key.as_str()).into());
        self.scheduler.cancel_all(cancels).await?;
        for key in &keys {
            self.expected.forget(key);
        }
        info!("{appointment}: struck out");
        Ok(())
    }

    /// Waits until the reminder of this name was sent for an appointment.
    pub(crate) async fn until_told(&self, appointment: &str, name: &str) {
        while self.expected.waits(&key(appointment, name)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every reminder was sent.
    pub(crate) async fn all_told(&self) {
        while !self.expected.is_complete() {
            tokio::time::sleep(Duration::from_millis(20)).await;
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
                expected.told(&key, &when, is_in_time);
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

/// The reminders to send, to be counted at the end.
#[derive(Debug, Default)]
pub(crate) struct Expected(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The reminders that were not sent yet.
    open: BTreeMap<String, Zoned>,
    count: usize,
    wrong: Vec<String>,
}

impl Expected {
    fn put(&self, key: String, when: Zoned) {
        self.lock().open.insert(key, when);
    }

    fn forget(&self, key: &str) {
        self.lock().open.remove(key);
    }

    fn told(&self, key: &str, when: &Zoned, is_in_time: bool) {
        let mut told = self.lock();
        let expected = told.open.remove(key);
        told.count += 1;
        if expected.as_ref() != Some(when) || is_night(when) || !is_in_time {
            told.wrong
                .push(format!("{key} at {when}, and not at {expected:?}"));
        }
    }

    fn waits(&self, key: &str) -> bool {
        self.lock().open.contains_key(key)
    }

    fn is_complete(&self) -> bool {
        self.lock().open.is_empty()
    }

    /// Counts the sent reminders; an error unless each was sent as planned.
    pub(crate) fn settle(&self) -> Result<usize, Error> {
        let told = self.lock();
        match told.wrong.is_empty() && told.open.is_empty() {
            true => Ok(told.count),
            false => Err(format!("told wrongly: {:?}; not told: {:?}", told.wrong, told.open).into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
