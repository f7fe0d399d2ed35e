//! A server's clock that stands still unless it is turned, for tests of the services that use it.

mod happened;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use delayline::clock::{self, Clock};
use delayline::store::{MemoryStore, Page, Store};
use delayline::{Error, Kind, Scheduler, State, Task, TaskId, Timestamp};

pub(crate) use self::happened::{Event, What};
use self::happened::{Happened, Hearing};
use self::witness::Witness;
use super::config::Config;
use crate::Failure;
use crate::reserved::is_reserved;
use crate::time;

/// Times have no finer parts: so a worker sweeps whenever the clock was turned.
pub(super) const SWEEP_EVERY: Duration = Duration::from_millis(1);
/// After every task of its time.
const LAST_ID: TaskId = TaskId::from_bytes([0xFF; 16]);
/// How many kinds, and how many tasks of each, are read at once.
const PAGE: usize = 500;

/// The clock of a server, the rows that go by it, and what happens to them while it is turned.
#[derive(Debug)]
pub(crate) struct TestClock {
    clock: clock::TestClock,
    rows: MemoryStore,
    witness: Arc<Witness>,
    happened: Arc<Happened>,
    turning: tokio::sync::Mutex<()>,
}

/// What came of turning the clock.
#[derive(Debug)]
pub(crate) struct Turned {
    /// False: so much has happened that it has stopped on its way, or before all has happened.
    pub(crate) is_complete: bool,
    /// How many tasks are due and wait.
    pub(crate) waiting: usize,
    pub(crate) events: Vec<Event>,
}

impl TestClock {
    /// Refuses a configuration of servers that go by clocks of their own.
    pub(crate) fn check(config: &Config) -> Result<(), Failure> {
        let (setting, why) = match config {
            Config { store: Some(_), .. } => ("store.url", "tasks are in memory then"),
            Config { redis: Some(_), .. } => ("redis.url", "a Redis holds wake-ups for real time"),
            _ => return Ok(()),
        };
        let name = config.name_of(setting);
        Err(Failure::Argument(format!(
            "--test-clock is given, and {name} is set: allowed is one of both, as {why}"
        )))
    }

    /// A clock that stands at this moment, over no rows. In a runtime of one thread.
    pub(crate) fn start(config: &Config) -> Self {
        let clock = clock::TestClock::starting_at(time::now());
        time::go_by(clock.clone());
        let rows = MemoryStore::with_clock(clock.clock());
        let happened = Arc::new(Happened::new(clock.clone()));
        Self {
            witness: Arc::new(Witness::new(rows.clone(), Arc::clone(&happened), config)),
            rows,
            clock,
            happened,
            turning: Default::default(),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.witness) as _
    }

    /// Tasks are delivered so from now on.
    pub(crate) fn deliver_by(&self, config: &Config) {
        self.witness.deliver_by(config);
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock.clock()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The same future, which is waited for whenever it has something to do.
    pub(crate) fn watch<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.clock.watch(future)
    }

    /// A webhook was answered with this status.
    pub(crate) fn answered(&self, task: &Task, status: u16) {
        self.happened.note(task, What::Webhook { status });
    }

    /// Turns the clock to `to`, by way of each moment at which something is due, where all that follows happens before it
    /// goes on. None: it is being turned.
    pub(crate) async fn turn(&self, scheduler: &Scheduler, to: Timestamp) -> Result<Option<Turned>, Error> {
        let Ok(_turning) = self.turning.try_lock() else {
            return Ok(None);
        };
        // Ends also if its caller goes away.
        let hearing = self.happened.hear();
        self.settle(&hearing).await;
        while !hearing.is_full() && self.now() < to {
            let from = self.now();
            let pauses = scheduler.paused().await?.into_iter();
            let resumed = pauses.filter_map(|paused| paused.until.filter(|&until| until > from));
            let next = resumed.chain(self.rows.next_look(from)).chain([to]).min();
            self.clock.turn_to(next.unwrap_or(to));
            self.settle(&hearing).await;
            self.tell_waiting(from).await?;
        }
        let turned = Turned {
            is_complete: self.now() >= to && !hearing.is_full(),
            waiting: self.count_waiting().await?,
            events: hearing.end(),
        };
        Ok(Some(turned))
    }

    /// Waits until all that is due has happened, or more than is told.
    async fn settle(&self, hearing: &Hearing<'_>) {
        tokio::select! {
            () = hearing.full() => {}
            () = self.clock.settled() => {}
        }
    }

    /// Tells of what has become due since, and waits.
    async fn tell_waiting(&self, since: Timestamp) -> Result<(), Error> {
        let now = self.now();
        for kind in self.kinds().await? {
            let mut page = Page::new(kind, State::Scheduled).limit(1);
            page.after = Some((since, LAST_ID));
            loop {
                let rows = self.rows.list(&page).await?;
                let due: Vec<_> = rows.iter().take_while(|row| row.due_at <= now).collect();
                due.iter().for_each(|row| self.happened.note(row, What::Waiting));
                match due.last() {
                    Some(last) if due.len() == page.limit => {
                        page.after = Some((last.due_at, last.id));
                        page.limit = PAGE;
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }

    async fn count_waiting(&self) -> Result<usize, Error> {
        let mut waiting = 0;
        for kind in self.kinds().await? {
            let spans = [Duration::ZERO];
            let counted = self.rows.due_within(&kind, State::Scheduled, &spans, usize::MAX);
            waiting += counted.await?.found.iter().sum::<usize>();
        }
        Ok(waiting)
    }

    /// The kinds of which there are tasks that wait for their times.
    async fn kinds(&self) -> Result<Vec<Kind>, Error> {
        let mut kinds = self.rows.kinds(State::Scheduled, None, usize::MAX).await?;
        kinds.retain(|kind| !is_reserved(kind.as_str()));
        Ok(kinds)
    }
}
