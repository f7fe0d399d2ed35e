//! Goes through tasks of several kinds in one order.

use std::collections::VecDeque;

use delayline::store::Page;
use delayline::{Error, Scheduler, Task};

use super::{Filter, Position};

/// Tasks of one state by due time and id, of whatever kind they are.
pub(super) struct Walk<'a> {
    scheduler: &'a Scheduler,
    lanes: Vec<Lane>,
}

/// The tasks of one kind.
struct Lane {
    /// What was read last, and after which it goes on.
    page: Page,
    /// What was read and is still to come.
    read: VecDeque<Task>,
    is_at_end: bool,
}

impl<'a> Walk<'a> {
    /// Those of the kinds and the due times of a filter, after a position.
    pub(super) fn begin(scheduler: &'a Scheduler, filter: &Filter, after: Option<Position>) -> Self {
        let lane = |kind| {
            let mut page = Page::new(kind, filter.state).limit(0);
            if let Some(time) = filter.due_after {
                page = page.due_from(time);
            }
            if let Some(time) = filter.due_before {
                page = page.due_before(time);
            }
            page.after = page.after.max(after.map(Position::pair));
            Lane {
                page,
                read: VecDeque::new(),
                is_at_end: false,
            }
        };
        let lanes = filter.kinds.iter().cloned().map(lane).collect();
        Self { scheduler, lanes }
    }

    /// The next one. So many are wanted at the most, this one included, so no more than that is read of a kind at once; and
    /// first only its share, as most of what comes next may be of another one.
    pub(super) async fn next(&mut self, wanted: usize) -> Result<Option<Task>, Error> {
        let share = wanted.div_ceil(self.lanes.len().max(1));
        for lane in &mut self.lanes {
            if lane.read.is_empty() && !lane.is_at_end {
                let rows = share.max(2 * lane.page.limit).min(wanted);
                lane.read(self.scheduler, rows).await?;
            }
        }
        let first = |lane: &&mut Lane| lane.read.front().map(Position::from);
        let filled = self.lanes.iter_mut().filter(|lane| !lane.read.is_empty());
        Ok(filled.min_by_key(first).and_then(|lane| lane.read.pop_front()))
    }
}

impl Lane {
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
