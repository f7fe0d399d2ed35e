//! `delayline tasks rerun`: a task that has ended, once more.

use super::One;
use super::change::{Told, hinted, print_outcome};
use crate::Failure;

/// Run a task that has ended once more, as a new one that is due now.
///
/// The new task has the kind, payload and headers of the one that has ended, and its key unless a live task has it.
#[derive(Debug, clap::Args)]
pub(super) struct Rerun {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    told: Told,
}

impl Rerun {
    pub(super) fn run(self) -> Result<(), Failure> {
        let target = self.one.needed()?;
        let Told { reason, place, json } = self.told;
        let outcome = crate::in_runtime(async {
            let client = place.client().await?;
            let outcome = client.rerun(target.clone(), reason).await?;
            Ok::<_, Failure>(hinted(&client, &target, outcome).await)
        })??;
        print_outcome(&target, &outcome, json, ("rerun", "ended"))
    }
}
