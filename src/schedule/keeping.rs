//! What is kept of tasks, of each kind.

use std::collections::BTreeMap;

use super::Scheduler;
use crate::store::Keep;
use crate::{Error, Kind};

impl Scheduler {
    /// Says what is kept of the tasks of some kinds from now on, in the place of all that was said before; of all other kinds
    /// what the store and [`SchedulerBuilder::history`](crate::SchedulerBuilder::history) say. May be said at any time.
    ///
    /// It holds for what happens through this scheduler, the workers and claims beside it, and its store: so it is to be said
    /// in every process alike. What has ended before stays as long as was said then.
    pub fn keep(&self, kinds: impl IntoIterator<Item = (Kind, Keep)>) -> Result<(), Error> {
        let mut keeps = BTreeMap::new();
        for (kind, keep) in kinds {
            kind.check()?;
            if keeps.insert(kind.clone(), keep).is_some() {
                return Err(Error::invalid("kind", kind, "allowed is each kind once"));
            }
        }
        self.kernel.keep(keeps);
        Ok(())
    }
}
