//! `delayline redis reshard`: another number of slots.

use delayline::backend::Resharding;

use super::Place;
use crate::{Failure, in_runtime, print};

/// Change over how many slots wake-ups are spread, or tasks with --tasks, while processes schedule and work.
///
/// Without --tasks, what a backend carries is moved: wake-ups, of tasks whose rows are in some store. With --tasks, what a
/// store keeps in Redis is moved: the tasks themselves, those in their history included. Where a service has both, each has
/// a number of slots of its own.
///
/// More slots make each key smaller, and let more masters of a Cluster share them. Interrupted, nothing is lost; the next
/// run ends what was begun.
#[derive(Debug, clap::Args)]
pub(crate) struct Reshard {
    #[command(flatten)]
    place: Place,
    /// How many slots there are to be, 1 to 1024
    #[arg(long, value_name = "SLOTS", allow_hyphen_values = true)]
    to: u16,
    /// Move the tasks that a RedisStore keeps under this prefix, instead of the wake-ups of a RedisBackend
    #[arg(long)]
    tasks: bool,
}

impl Reshard {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let what = if self.tasks { "tasks" } else { "wake-ups" };
        let bar = indicatif::ProgressBar::no_length();
        let mut moved = 0;
        let told = |so_far: Resharding| {
            moved = so_far.moved;
            bar.set_message(format!("{moved} {what} moved, {} left in this slot", so_far.left));
            bar.tick();
        };
        if self.tasks {
            let store = self.place.store()?;
            in_runtime(store.reshard(self.to, told))??;
        } else {
            let backend = self.place.backend()?;
            in_runtime(backend.reshard(self.to, told))??;
        }
        bar.finish_and_clear();
        print(&format!(
            "there are {} slots now; {moved} {what} were moved\n",
            self.to
        ))
    }
}
