//! Batches of which no two name one row.

use std::collections::BTreeMap;

use crate::TaskId;

/// The places of a batch in rounds, nearly always one: no round has an id twice, and those of an id keep their order.
/// Within a round they are in the order of their ids, so that two batches do not lock each other out.
pub(in crate::store) fn rounds(ids: impl Iterator<Item = TaskId>) -> Vec<Vec<usize>> {
    let mut rounds: Vec<BTreeMap<TaskId, usize>> = Vec::new();
    for (place, id) in ids.enumerate() {
        match rounds.iter_mut().find(|round| !round.contains_key(&id)) {
            Some(round) => {
                round.insert(id, place);
            }
            None => rounds.push([(id, place)].into()),
        }
    }
    rounds
        .into_iter()
        .map(|round| round.into_values().collect())
        .collect()
}
