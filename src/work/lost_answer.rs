//! Tells a claim that an earlier try has ended, whose answer was lost, from one that was lost to others.

use crate::claims::ClaimId;
use crate::store::{Store, Target};
use crate::{Error, State, Task};

/// Whether a claim that is gone has made its row this, by one transition. `claimed`: the task, where it is known.
pub(crate) async fn became(
    store: &dyn Store,
    claim: ClaimId,
    claimed: Option<&Task>,
    state: State,
) -> Result<bool, Error> {
    // Where its lease has ended instead, the row has one stall more.
    let is_of_claim =
        |row: &Task| claimed.is_none_or(|claimed| row.owner == claimed.owner && row.stalls <= claimed.stalls);
    let row = store.find(&Target::Id(claim.task_id())).await?;
    Ok(row.is_some_and(|row| row.version == claim.version() + 1 && row.state == state && is_of_claim(&row)))
}
