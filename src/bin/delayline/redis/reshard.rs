//! `delayline redis reshard`: another number of slots.

use super::Place;
use crate::{Failure, in_runtime, print};

/// Change over how many slots wake-ups are spread, while processes send and receive.
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
}

impl Reshard {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let backend = self.place.backend()?;
        let bar = indicatif::ProgressBar::no_length();
        let mut moved = 0;
        in_runtime(backend.reshard(self.to, |so_far| {
            moved = so_far.moved;
            bar.set_message(format!(
                "{moved} wake-ups moved, {} left in this slot",
                so_far.left
            ));
            bar.tick();
        }))??;
        bar.finish_and_clear();
        print(&format!(
            "there are {} slots now; {moved} wake-ups were moved\n",
            self.to
        ))
    }
}
