//! What happened in one simulated history, and whether it was allowed to.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use delayline::store::{Page, Store};
use delayline::{Answer, Clock, Context, Kind, State, Target, Task, TaskId, Timestamp, Wake};

/// Records every row as it was at every version, every handler start and every answer, by the store's clock.
#[derive(Debug)]
pub(crate) struct History {
    clock: Clock,
    /// How many tasks of a kind a worker may hold; none where it may not know what it holds.
    capacity: Option<usize>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rows: BTreeMap<TaskId, BTreeMap<u64, Task>>,
    lines: Vec<String>,
    broken: Vec<String>,
    /// Versions below which, by an answer to a caller, no handler starts any more.
    fenced: BTreeMap<TaskId, u64>,
    cancelled: BTreeMap<TaskId, u64>,
    starts: Vec<Start>,
}

/// A handler was started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) task: Task,
    pub(crate) at: Timestamp,
}

impl History {
    pub(crate) fn new(clock: Clock, capacity: Option<usize>) -> Self {
        Self {
            clock,
            capacity,
            inner: Mutex::default(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        let line = format!(
            "{} {}",
            self.clock.now().as_millis() - 1_000_000_000_000,
            line.into()
        );
        self.inner().lines.push(line);
    }

    pub(crate) fn broken(&self, line: impl Into<String>) {
        let line = line.into();
        self.note(format!("BROKEN: {line}"));
        self.inner().broken.push(line);
    }

    /// Looks at every row, after one operation on the store.
    pub(crate) async fn look(&self, store: &dyn Store, what: &str) {
        for task in every_row(store).await {
            let mut inner = self.inner();
            let versions = inner.rows.entry(task.id).or_default();
            if versions.contains_key(&task.version) {
                continue;
            }
            let before = versions.last_key_value().map(|(_, before)| before.clone());
            versions.insert(task.version, task.clone());
            drop(inner);
            self.note(format!(
                "{what}: {} v{} {:?} due {} hop {} attempt {}",
                short(task.id),
                task.version,
                task.state,
                task.due_at.as_millis() - 1_000_000_000_000,
                task.hop,
                task.attempt
            ));
            self.check_transition(before.as_ref(), &task);
        }
        self.check_bounds();
    }

    /// No worker holds more of a kind than it may.
    fn check_bounds(&self) {
        let Some(capacity) = self.capacity else {
            return;
        };
        let over = {
            let inner = self.inner();
            let mut held: BTreeMap<(Option<&str>, &Kind), usize> = BTreeMap::new();
            let newest = inner
                .rows
                .values()
                .filter_map(|versions| versions.last_key_value());
            for (_, row) in newest.filter(|(_, row)| row.state == State::Running) {
                *held.entry((row.owner.as_deref(), &row.kind)).or_default() += 1;
            }
            held.into_iter()
                .find(|&(_, held)| held > capacity)
                .map(|over| format!("{over:?}"))
        };
        if let Some(over) = over {
            self.broken(format!("7 bounded: {over} of {capacity} at the most"));
        }
    }

    fn check_transition(&self, before: Option<&Task>, task: &Task) {
        // One insert, for several callers, may write a row and replace it, more than once.
        let replaced =
            task.state == State::Scheduled && task.key.is_some() && (task.hop, task.attempt) == (0, 0);
        let Some(before) = before else {
            if (task.version != 1 && !replaced) || task.state != State::Scheduled {
                self.broken(format!("{} began as {task:?}", short(task.id)));
            }
            return;
        };
        use State::{Cancelled, Dead, Done, Running, Scheduled};
        let allowed = matches!(
            (before.state, task.state),
            (Scheduled, Scheduled | Running | Cancelled)
                | (Running, Scheduled | Done | Dead)
                | (Dead, Scheduled)
        );
        // One sweep both ends a lease and claims the row anew.
        let reclaimed =
            before.state == Running && task.state == Running && task.version == before.version + 2;
        let steps = task.version - before.version;
        let stepwise = steps <= 2 || (before.state == Scheduled && replaced);
        if !(reclaimed || allowed && stepwise) {
            self.broken(format!("from {before:?} to {task:?}"));
        }
        if task.state == Running && task.due_at > self.clock.now() {
            self.broken(format!("claimed early: {task:?}"));
        }
    }

    /// A handler starts: is it its time, and is it this worker's to start?
    pub(crate) async fn started(&self, store: &dyn Store, context: &Context) {
        let (task, at) = (context.task().clone(), self.clock.now());
        self.note(format!(
            "start: {} v{} attempt {}",
            short(task.id),
            task.version,
            task.attempt
        ));
        if at < task.due_at {
            self.broken(format!("1 never early: {task:?} started at {at}"));
        }
        let row = store.find(&Target::Id(task.id)).await.ok().flatten();
        if !row
            .as_ref()
            .is_some_and(|row| row.version == task.version && row.state == State::Running)
        {
            self.broken(format!("4 one owner: {task:?} started while its row is {row:?}"));
        }
        let (fence, cancelled) = {
            let inner = self.inner();
            (
                inner.fenced.get(&task.id).copied(),
                inner.cancelled.get(&task.id).copied(),
            )
        };
        if fence.is_some_and(|fence| task.version <= fence) || cancelled.is_some() {
            self.broken(format!(
                "3 definite answers: {task:?} started after {fence:?} {cancelled:?}"
            ));
        }
        self.inner().starts.push(Start { task, at });
    }

    /// A caller was told that its change is done: whatever was before it never starts.
    pub(crate) fn answered(&self, verb: &str, answer: &Answer) {
        let version = answer.task().map(|task| task.version);
        let name = format!("{answer:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
        self.note(format!("{verb}: {name} v{version:?}"));
        if let Answer::Done(task) = answer {
            let mut inner = self.inner();
            inner.fenced.insert(task.id, task.version);
            if task.state == State::Cancelled {
                inner.cancelled.insert(task.id, task.version);
            }
        }
    }

    /// After everything was healed and given time: has every task ended, and was each wake-up sent once?
    pub(crate) fn check_end(&self, rows: &[Task], sent: &[(&str, Vec<Wake>)]) {
        for task in rows {
            if task.state.is_live() {
                self.broken(format!("2 never lost: {task:?} has not ended"));
            }
        }
        let ended: Vec<_> = rows.iter().map(|task| task.id).collect();
        let lost: Vec<_> = self
            .inner()
            .rows
            .keys()
            .filter(|id| !ended.contains(id))
            .copied()
            .collect();
        for id in lost {
            self.broken(format!("2 never lost: {id} has no row any more"));
        }
        for (backend, wakes) in sent {
            let mut times: BTreeMap<&Wake, usize> = BTreeMap::new();
            for wake in wakes {
                *times.entry(wake).or_default() += 1;
            }
            for (wake, times) in times {
                if times > 1 {
                    self.broken(format!(
                        "5 one chain: {wake:?} was sent {times} times to {backend}"
                    ));
                }
            }
        }
    }

    pub(crate) fn starts(&self) -> Vec<Start> {
        self.inner().starts.clone()
    }

    /// The row of a task as it was at each version.
    pub(crate) fn versions(&self, id: TaskId) -> BTreeMap<u64, Task> {
        self.inner().rows.get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn result(&self) -> (Vec<String>, Vec<String>) {
        let inner = self.inner();
        (inner.lines.clone(), inner.broken.clone())
    }
}

pub(crate) const KINDS: [&str; 2] = ["a", "b"];

pub(crate) async fn every_row(store: &dyn Store) -> Vec<Task> {
    let mut rows = Vec::new();
    for kind in KINDS {
        for state in [
            State::Scheduled,
            State::Running,
            State::Done,
            State::Dead,
            State::Cancelled,
        ] {
            let page = Page {
                kind: Kind::from(kind),
                state,
                after: None,
                limit: 1_000,
            };
            rows.extend(store.list(&page).await.unwrap_or_default());
        }
    }
    rows
}

pub(crate) fn short(id: TaskId) -> String {
    let text = id.to_string();
    text[text.len() - 6..].to_owned()
}
