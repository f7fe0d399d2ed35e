//! What happened in one history, and whether it was allowed to.

#[path = "ledger/answers.rs"]
mod answers;
#[path = "ledger/chains.rs"]
mod chains;
#[path = "ledger/endings.rs"]
mod endings;
#[path = "ledger/pauses.rs"]
mod pauses;
#[path = "ledger/starts.rs"]
mod starts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::backend::Wake;
use delayline::clock::Clock;
use delayline::expected::Expected;
use delayline::store::{Ending, Verb};
use delayline::{Key, State, Task, TaskId, Timestamp};
use tokio::time::Instant;

pub(crate) use self::answers::Asked;
use self::pauses::Pause;
pub(crate) use self::pauses::Pausing;
pub(crate) use self::starts::{CameOfIt, Handling};
use crate::model::{Cause, Entry};
use crate::plan::Plan;

/// Every version of every row, every claim and what came of it, every answer, by the true time; and what was wrong.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) plan: Arc<Plan>,
    origin: Instant,
    verbose: bool,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    lines: Vec<String>,
    broken: Vec<Broken>,
    stories: BTreeMap<TaskId, Story>,
    lives: BTreeMap<u64, Life>,
    /// What callers have given as payloads so far.
    numbers: u64,
    starts: usize,
    /// How often each wake-up was given to each backend, but for what was armed anew.
    sent: BTreeMap<(&'static str, Wake), usize>,
    refused: BTreeMap<(u64, Wake), Instant>,
    /// By the store's clock: the latest that it has ever been.
    highest: Option<Timestamp>,
    /// By how many ms the store's clock is ahead of what it was at first, after each of its steps.
    steps: Vec<i64>,
    healed: Option<Duration>,
    pauses: Vec<Pause>,
    /// What the service's own table says, and since when.
    tables: BTreeMap<Key, (Expected, Duration)>,
    /// When a process last asked about a key, and what it was told.
    asked: BTreeMap<(u64, Key), (Duration, Expected)>,
}

/// Something that must not be.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Which check found it.
    pub(crate) check: &'static str,
    pub(crate) text: String,
}

/// One task.
#[derive(Debug, Default)]
struct Story {
    versions: BTreeMap<u64, Seen>,
    claims: BTreeMap<u64, Held>,
    /// Up to this version nothing starts any more: so a caller was told.
    fence: u64,
    /// How many handlers started since it was scheduled anew, or were about to.
    starts: u32,
    purged: bool,
}

/// A version of a row.
#[derive(Debug)]
struct Seen {
    task: Task,
    cause: Cause,
    at: Duration,
}

/// A claim.
#[derive(Debug)]
struct Held {
    life: u64,
    claimed_at: Duration,
    /// After how many steps of the store's clock the lease was last given; and until when it lasts, by the true time.
    given_after: usize,
    lease_until: Duration,
    /// After how many steps the lease was mended, as it was given while the store's clock was ahead.
    mended_after: Option<usize>,
    started: bool,
    /// It is among the starts of its task: its handler was started, or the store was told that it was about to.
    counted: bool,
    came_of_it: Option<CameOfIt>,
    /// Its handler finishes it in a transaction.
    finishing: bool,
    /// When its process last began to settle it, by its own clock; or when there was something to settle.
    settling: Option<Instant>,
    /// When its process was told that it is lost, by its own clock.
    lost: Option<Instant>,
}

/// A process.
#[derive(Debug)]
struct Life {
    clock: Clock,
    is_alive: bool,
    is_stopping: bool,
    /// The answer that its worker goes by: of those that it has heard, the one that was asked for last. When that was, and
    /// after how many steps of its clock the store gave it.
    heard: (Duration, usize),
    /// After how many steps of the store's clock the answers were given that it has gone by while the clock was still so.
    heard_after: BTreeSet<usize>,
    /// The handlers that run.
    running: BTreeMap<TaskId, u64>,
}

impl Ledger {
    pub(crate) fn new(plan: Arc<Plan>, verbose: bool) -> Self {
        Self {
            plan,
            origin: Instant::now(),
            verbose,
            book: Mutex::default(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time since the history began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            let line = format!("{} {}", self.elapsed().as_millis(), line());
            self.book().lines.push(line);
        }
    }

    pub(crate) fn broken(&self, check: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.note(|| format!("BROKEN {check}: {text}"));
        self.book().broken.push(Broken { check, text });
    }

    pub(crate) fn is_broken(&self) -> bool {
        !self.book().broken.is_empty()
    }

    /// A number that no other payload has.
    pub(crate) fn number(&self) -> u64 {
        let mut book = self.book();
        book.numbers += 1;
        book.numbers
    }

    pub(crate) fn born(&self, life: u64, clock: &Clock) {
        let born = Life {
            clock: clock.clone(),
            is_alive: true,
            is_stopping: false,
            heard: (Duration::ZERO, 0),
            heard_after: BTreeSet::new(),
            running: BTreeMap::new(),
        };
        let now = self.elapsed();
        let mut book = self.book();
        // One that was to die dies also later than that; until there is another, no process runs what is due.
        book.healed = book.healed.map(|healed| healed.max(now));
        book.lives.insert(life, born);
    }

    pub(crate) fn stopping(&self, life: u64) {
        self.note(|| format!("process {life} stops"));
        if let Some(life) = self.book().lives.get_mut(&life) {
            life.is_stopping = true;
        }
    }

    pub(crate) fn died(&self, life: u64) {
        self.note(|| format!("process {life} is gone"));
        if let Some(life) = self.book().lives.get_mut(&life) {
            life.is_alive = false;
        }
    }

    /// The store's clock is stepped.
    pub(crate) fn stepped(&self, from: Timestamp, millis: i64) {
        self.note(|| format!("the store's clock is stepped by {millis} ms"));
        let mut book = self.book();
        let before = book.steps.last().copied().unwrap_or(0);
        book.steps.push(before + millis);
        // What had come by then may start, though no row was written at that time.
        book.highest = book.highest.max(Some(from));
    }

    /// How many steps the store's clock has made so far.
    pub(crate) fn steps(&self) -> usize {
        self.book().steps.len()
    }

    /// The latest that the store's clock has ever been, up to when a row was written or the clock was stepped last.
    pub(crate) fn highest(&self) -> Timestamp {
        self.book().highest.unwrap_or(Timestamp::MIN)
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn healed(&self) {
        self.note(|| "healed".to_owned());
        self.book().healed = Some(self.elapsed());
    }

    /// The worker of the process has got an answer of the store, which was asked for at `asked`, and given after so many
    /// steps of its clock.
    pub(crate) fn heard(&self, life: u64, asked: Duration, given_after: usize) {
        self.note(|| {
            let asked = asked.as_millis();
            format!("process {life} hears the time, asked at {asked}, given after {given_after} steps")
        });
        let mut book = self.book();
        let is_still_so = book.steps.len() == given_after;
        if let Some(life) = book.lives.get_mut(&life)
            && asked >= life.heard.0
        {
            life.heard = (asked, given_after);
            // By a late answer it has not noticed the step in time: the clock is back.
            if is_still_so {
                life.heard_after.insert(given_after);
            }
        }
    }

    /// The service's own table has changed.
    pub(crate) fn expects(&self, key: &Key, expected: Expected) {
        self.note(|| format!("the table says {expected:?} of {key}"));
        let at = self.elapsed();
        self.book().tables.insert(key.clone(), (expected, at));
    }

    pub(crate) fn expected(&self, key: &Key) -> Expected {
        self.book()
            .tables
            .get(key)
            .map_or(Expected::Gone, |&(expected, _)| expected)
    }

    /// A process has asked the service about a task and been told this.
    pub(crate) fn asked(&self, life: u64, key: &Key, expected: Expected) {
        let at = self.elapsed();
        self.book().asked.insert((life, key.clone()), (at, expected));
    }

    /// A row has changed.
    pub(crate) fn record(&self, entry: Entry, what: &str, now: Timestamp) {
        let at = self.elapsed();
        let Entry { before, after, cause } = entry;
        self.note(|| {
            format!(
                "{what}: {} v{} {:?} due {} hop {} attempt {} stalls {}{} by {:?}: {}",
                short(after.id),
                after.version,
                after.state,
                after.due_at.as_millis() - 1_000_000_000_000,
                after.hop,
                after.attempt,
                after.stalls,
                if after.started { " started" } else { "" },
                after.owner,
                named(&cause),
            )
        });
        let mut book = self.book();
        let highest = book.highest.map_or(now, |highest| highest.max(now));
        book.highest = Some(highest);
        let given_after = book.steps.len();
        let story = book.stories.entry(after.id).or_default();
        match &cause {
            Cause::Touched => {
                let held = story.claims.get_mut(&after.version);
                if what == "purge"
                    && let Some(held) = held
                {
                    held.mended_after = Some(given_after);
                } else if what == "renew"
                    && let Some(held) = held
                {
                    (held.given_after, held.mended_after) = (given_after, None);
                    held.lease_until = at + between(now, after.wake_at);
                    if after.started && !std::mem::replace(&mut held.counted, true) {
                        story.starts += 1;
                    }
                }
                return;
            }
            Cause::Purged => {
                story.purged = true;
                return;
            }
            Cause::Claimed => {
                let life = after
                    .owner
                    .as_deref()
                    .and_then(|name| name.parse().ok())
                    .unwrap_or(0);
                let held = Held {
                    life,
                    claimed_at: at,
                    given_after,
                    mended_after: None,
                    lease_until: at + between(now, after.wake_at),
                    started: false,
                    counted: false,
                    came_of_it: None,
                    finishing: false,
                    settling: None,
                    lost: None,
                };
                story.claims.insert(after.version, held);
            }
            _ => {}
        }
        if is_anew(&cause) {
            story.starts = 0;
        }
        let (state, version) = (after.state, after.version);
        let seen = Seen {
            task: after.clone(),
            cause: cause.clone(),
            at,
        };
        story.versions.insert(version, seen);
        drop(book);
        match (&cause, &before) {
            (Cause::Settled(ending), Some(before)) => self.check_ending(before, &after, ending, what, now),
            (Cause::Expired, Some(before)) => self.check_expiry(before),
            _ => {}
        }
        if state == State::Running {
            self.check_bounds(&after);
        }
    }

    /// No worker holds more of a kind than it may.
    fn check_bounds(&self, claimed: &Task) {
        if !self.plan.store_is_reliable() {
            // A claim whose answer was lost belongs to no worker until its lease ends.
            return;
        }
        let capacity = self.plan.capacity();
        let book = self.book();
        let newest = book.stories.values().filter(|story| !story.purged);
        let newest = newest.filter_map(|story| story.versions.last_key_value());
        let held = newest.filter(|(_, seen)| {
            let task = &seen.task;
            (task.state, &task.owner, &task.kind) == (State::Running, &claimed.owner, &claimed.kind)
        });
        let held = held.count();
        drop(book);
        if held > capacity {
            let text = format!("{:?} holds {held} of {capacity} at the most", claimed.owner);
            self.broken("7 bounded", text);
        }
    }

    /// After everything was healed and given time: has every task ended?
    pub(crate) fn check_end(&self, rows: &[Task]) {
        for task in rows.iter().filter(|task| task.state.is_live()) {
            self.broken("2 never lost", format!("{task:?} has not ended"));
        }
        let book = self.book();
        let mut lost = Vec::new();
        for (id, story) in &book.stories {
            let row = rows.iter().find(|task| task.id == *id);
            if row.is_none() && !story.purged {
                lost.push(*id);
            }
        }
        drop(book);
        for id in lost {
            self.broken("2 never lost", format!("{id} has no row any more"));
        }
        self.check_sent();
        self.check_lost();
    }

    pub(crate) fn tasks(&self) -> usize {
        self.book().stories.len()
    }

    pub(crate) fn starts(&self) -> usize {
        self.book().starts
    }

    pub(crate) fn result(&self) -> (Vec<String>, Vec<Broken>) {
        let mut book = self.book();
        (std::mem::take(&mut book.lines), std::mem::take(&mut book.broken))
    }
}

/// Whether its attempts are counted from here on.
fn is_anew(cause: &Cause) -> bool {
    match cause {
        Cause::Inserted | Cause::Replaced => true,
        Cause::Changed(Verb::Cancel | Verb::Dismiss | Verb::Edit { due: None, .. }) => false,
        Cause::Changed(_) => true,
        Cause::Settled(ending) => matches!(ending, Ending::Again { .. } | Ending::Moved { .. }),
        Cause::Hopped | Cause::Claimed | Cause::Expired | Cause::Touched | Cause::Purged => false,
    }
}

fn between(now: Timestamp, wake_at: Option<Timestamp>) -> Duration {
    let millis = wake_at.map_or(0, |wake_at| wake_at.millis_since(now));
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn named(cause: &Cause) -> String {
    match cause {
        Cause::Settled(ending) => format!("{ending:?}"),
        Cause::Changed(verb) => format!("{verb:?}"),
        cause => format!("{cause:?}"),
    }
}

pub(crate) fn short(id: TaskId) -> String {
    let text = id.to_string();
    text[text.len() - 6..].to_owned()
}
