//! Goes through tasks of several kinds in one order.

use std::collections::VecDeque;

use delayline::store::Page;
use delayline::{Error, Scheduler, Task};

use super::{Filter, LEAN, Position};

/// Tasks of one state by due time and id, of whatever kind they are.
pub(super) struct Walk<'a> {
    scheduler: &'a Scheduler,
    cursors: Vec<KindCursor>,
    /// How many of a kind are read at once at the least.
    least: usize,
}

/// How many are read of a kind at once at the least where they are read without payloads: of many kinds each would be asked
/// for one at a time otherwise.
const FEW: usize = 16;

/// The tasks of one kind.
struct KindCursor {
    /// What was read last, and after which it goes on.
    page: Page,
    /// What was read and is still to come.
    read: VecDeque<Task>,
    is_at_end: bool,
}

impl<'a> Walk<'a> {
    /// Those of the kinds and the due times of a filter, after a position.
    pub(super) fn begin(
        scheduler: &'a Scheduler,
        filter: &Filter,
        after: Option<Position>,
        with_payloads: bool,
    ) -> Self {
        let cursor = |kind| {
            let mut page = Page::new(kind, filter.state).limit(0);
            if !with_payloads {
                page = page.lean();
            }
            if let Some(time) = filter.due_after {
                page = page.due_from(time);
            }
            if let Some(time) = filter.due_before {
                page = page.due_before(time);
            }
            page.after = page.after.max(after.map(Position::pair));
            KindCursor {
                page,
                read: VecDeque::new(),
                is_at_end: false,
            }
        };
        let cursors = filter.kinds.iter().cloned().map(cursor).collect();
        Self {
            scheduler,
            cursors,
            least: if with_payloads { 1 } else { FEW },
        }
    }

    /// The next one. So many are wanted at the most, this one included, so no more than that are read and wait beside some
    /// of each kind; and of a kind first only its share, as most of what comes next may be of another one.
    pub(super) async fn next(&mut self, wanted: usize) -> Result<Option<Task>, Error> {
        let share = wanted.div_ceil(self.cursors.len().max(1));
        let mut room = wanted.saturating_sub(self.cursors.iter().map(KindCursor::waiting).sum());
        for cursor in &mut self.cursors {
            if cursor.read.is_empty() && !cursor.is_at_end {
                let rows = share.max(2 * cursor.page.limit).min(room);
                cursor
                    .read(self.scheduler, rows.max(self.least.min(wanted)))
                    .await?;
                room = room.saturating_sub(cursor.waiting());
                if cursor.read.iter().any(is_long) {
                    self.least = 1;
                }
            }
        }
        let first = |cursor: &&mut KindCursor| cursor.read.front().map(Position::from);
        let filled = self.cursors.iter_mut().filter(|cursor| !cursor.read.is_empty());
        Ok(filled
            .min_by_key(first)
            .and_then(|cursor| cursor.read.pop_front()))
    }
}

/// Whether a task takes more than its part of what is held for each kind.
fn is_long(task: &Task) -> bool {
    let error = task.last_error.as_ref();
    error.is_some_and(|error| error.len() > LEAN / FEW)
}

impl KindCursor {
    /// How many are still to come beside the first.
    fn waiting(&self) -> usize {
        self.read.len().saturating_sub(1)
    }

    async fn read(&mut self, scheduler: &Scheduler, rows: usize) -> Result<(), Error> {
        self.page.limit = rows;
        self.read = scheduler.list(&self.page).await?.into();
        // A page is short of what cannot be read, so only an empty one is the last.
        self.is_at_end = self.read.is_empty();
        let last = self.read.back().map(|task| Position::from(task).pair());
        self.page.after = last.or(self.page.after);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delayline::store::MemoryStore;
    use delayline::{NewTask, State, Timestamp};

    use super::*;

    #[tokio::test]
    async fn few_wait_of_many_kinds_and_all_come_in_order() {
        let scheduler = Scheduler::new(MemoryStore::new());
        // Some of each kind, in turns, and many of one.
        let kind = |n: i64| if n < 400 { n % 20 } else { 0 };
        let task = |n: i64| {
            let time = Timestamp::from_millis(4_000_000_000_000 + n);
            NewTask::new(format!("k{}", kind(n)), &n).at(time)
        };
        scheduler.schedule_all((0..500).map(task)).await.unwrap();
        let filter = Filter {
            kinds: (0..20).map(|n| format!("k{n}").into()).collect(),
            state: State::Scheduled,
            due_after: None,
            due_before: None,
            key_prefix: None,
            error: None,
        };
        for with_payloads in [false, true] {
            let mut walk = Walk::begin(&scheduler, &filter, None, with_payloads);
            let mut found = Vec::new();
            let least = if with_payloads { 1 } else { FEW };
            while let Some(task) = walk.next(16).await.unwrap() {
                let waiting: usize = walk.cursors.iter().map(|cursor| cursor.read.len()).sum();
                assert!(waiting < 16 + 20 * least, "{waiting} wait after {}", found.len());
                let few = walk.cursors.iter().all(|cursor| cursor.read.len() + 1 >= least);
                assert!(few || !found.is_empty(), "each is asked for one at a time");
                assert_eq!(task.payload.is_empty(), !with_payloads);
                found.push(task.due_at.as_millis() - 4_000_000_000_000);
            }
            assert_eq!(found, (0..500).collect::<Vec<_>>());
        }
    }
}
