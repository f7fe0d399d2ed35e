//! Writes of workers, each guarded by the version of its row: steps, and renewed leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::warn;

use super::loaded::Loaded;
use super::retry_window::{LOCKED_TRIES, TURNS, moment};
use super::table_engine::TableEngine;
use crate::store::rows::Rows;
use crate::store::rules::{self, Transition};
use crate::store::table::{Outcome, Table};
use crate::store::{Guarded, Renewal, Stamped, Step};
use crate::{Error, State, Task, TaskId, Timestamp};

/// What a guarded write is of: the row, and the version and state that it must have.
type Named = (TaskId, u64, State);

impl<T: Table> TableEngine<T> {
    /// As [`Store::advance`](crate::store::Store::advance).
    pub(super) async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        let named: Vec<_> = steps
            .iter()
            .map(|step| (step.id, step.version, step.event.needs()))
            .collect();
        let claimed = |place: usize| {
            let Step {
                id, version, claimed, ..
            } = &steps[place];
            let claimed = claimed.as_deref()?;
            (claimed.id == *id && claimed.version == *version).then_some(claimed)
        };
        let take = |rows: &mut Rows, place: usize, now| {
            let step = &steps[place];
            rows.enter(step.id, now, &step.note, |row| {
                Transition::of(&step.event, self.stays.of(&row.kind)).apply(row, now);
            });
        };
        self.guarded(&named, claimed, take).await
    }

    /// As [`Store::renew`](crate::store::Store::renew).
    pub(super) async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        let named: Vec<_> = claims
            .iter()
            .map(|claim| (claim.id, claim.version, State::Running))
            .collect();
        let renew = |rows: &mut Rows, place: usize, now| {
            let claim: &Renewal = &claims[place];
            rows.change(claim.id, |row| rules::renew(row, claim.started, lease, now));
        };
        self.guarded(&named, |_| None, renew).await
    }

    /// Makes of each row what `make` makes of it, if it is as it must be; says of each what came of it. Rows are read unless
    /// all of them are `claimed`, under leases that have not ended, and the time is known.
    async fn guarded<'t>(
        &self,
        named: &[Named],
        claimed: impl Fn(usize) -> Option<&'t Task> + Send,
        make: impl Fn(&mut Rows, usize, Timestamp) + Send,
    ) -> Result<Vec<Guarded>, Error> {
        let mut came: Vec<Option<Guarded>> = vec![None; named.len()];
        for turn in 0..TURNS {
            let open: Vec<_> = (0..named.len()).filter(|&place| came[place].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let given = self.time.now(&self.clock).filter(|_| turn == 0).and_then(|now| {
                // After its lease others may have ended it, and a new row of its id may be there.
                let held = |&place| claimed(place).filter(|row| !rules::lease_has_ended(row, now));
                let rows: Option<Vec<_>> = open.iter().map(held).collect();
                Some((now, Loaded::given(rows?.into_iter())))
            });
            let (now, mut loaded) = match given {
                Some(given) => given,
                None => {
                    let ids: BTreeSet<_> = open.iter().map(|&place| named[place].0).collect();
                    let Stamped { now, found } = self.table.hold_for_worker(&Vec::from_iter(ids)).await?;
                    (now, Loaded::of(found))
                }
            };
            let versions: BTreeMap<_, _> = open
                .iter()
                .filter_map(|&place| loaded.rows.get(named[place].0))
                .map(|row| (row.id, row.version))
                .collect();
            for &place in &open {
                let (id, version, state) = named[place];
                let is_meant = |row: &Task| {
                    let is_same = claimed(place).is_none_or(|claimed| claimed.created_at == row.created_at);
                    is_same && row.state == state && row.version == version
                };
                came[place] = Some(if loaded.is_unreadable(id) {
                    Guarded::Blocked
                } else if loaded.rows.get(id).is_some_and(is_meant) {
                    make(&mut loaded.rows, place, now);
                    Guarded::Done
                } else {
                    Guarded::Lost
                });
            }
            let missed = loaded.write(&self.table, &BTreeSet::new()).await?;
            let mut is_locked = false;
            for place in open {
                let (id, version, _) = named[place];
                // What was past before is lost, whatever becomes of the row.
                let is_past = versions.get(&id).is_some_and(|before| version < *before);
                match missed.get(&id).filter(|_| !is_past) {
                    None | Some(Outcome::Written) => {}
                    // Read again, which tells whether it is lost.
                    Some(Outcome::Lost) => came[place] = None,
                    Some(Outcome::Locked) => {
                        is_locked = true;
                        came[place] = (turn >= LOCKED_TRIES).then_some(Guarded::Blocked);
                    }
                    Some(Outcome::Refused(error)) if named.len() == 1 => return Err(error.once_more()),
                    Some(Outcome::Refused(error)) => {
                        warn!(store = self.table.name(), %id, %error, "a step of a task was not written; it is tried again");
                        came[place] = Some(Guarded::Blocked);
                    }
                }
            }
            if is_locked && turn < LOCKED_TRIES {
                moment(&self.clock).await;
            }
        }
        Ok(came
            .into_iter()
            .map(|came| came.unwrap_or(Guarded::Blocked))
            .collect())
    }
}
