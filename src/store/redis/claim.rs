//! What claims have in common: who claims and for what, and what is said of each row.

use std::collections::BTreeMap;

use super::answer::Items;
use super::database::Request;
use crate::store::{Claim, Pending};
use crate::timestamp::millis;
use crate::{Error, Kind, Task, TaskId};

/// How many rows go into one call: a bound on how long it keeps the server from others.
pub(super) const ROWS: usize = 50;

/// What is still to be had of each kind.
pub(super) type Room = BTreeMap<Kind, usize>;

/// What a look found at one wake-up.
pub(super) enum Seen {
    Claimed(Task),
    /// A claimed row that cannot be read: it does not run, and must not keep others from it.
    Unreadable,
    Early(Pending),
    Waiting(Kind),
    Stale,
}

/// Who claims and for how long, as scripts take it.
pub(super) fn claimer(call: &mut Request, claim: &Claim) {
    // As much as a row has room for: owners are for people.
    let mut owner = &*claim.owner;
    if owner.len() > usize::from(u16::MAX) {
        let end = (0..=usize::from(u16::MAX)).rev();
        let end = end.into_iter().find(|&end| owner.is_char_boundary(end));
        owner = &owner[..end.unwrap_or(0)];
    }
    call.arg(owner).arg(millis(claim.lease));
}

/// What a script says of one row: a number, and what belongs to it.
pub(super) fn seen_of(id: TaskId, items: &mut Items) -> Result<Seen, Error> {
    Ok(match items.number()? {
        0 => match items.task(id) {
            Ok(task) => Seen::Claimed(task),
            Err(error) => {
                tracing::error!(%id, %error, "a row cannot be read: it does not run");
                Seen::Unreadable
            }
        },
        1 => Seen::Early(items.brief(id)?.pending),
        2 => Seen::Waiting(items.text()?.into()),
        _ => Seen::Stale,
    })
}
