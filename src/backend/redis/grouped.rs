//! Batches, slot by slot.

use std::collections::BTreeMap;

use crate::redis::{Layout, Slot};
use crate::{TaskId, defaults};

/// Splits a batch into parts of one slot each, none larger than a script takes.
pub(super) fn grouped<T>(
    items: impl IntoIterator<Item = T>,
    layout: Layout,
    id: impl Fn(&T) -> TaskId,
) -> Vec<(Slot, Vec<T>)> {
    let mut slots: BTreeMap<Slot, Vec<Vec<T>>> = BTreeMap::new();
    for item in items {
        let parts = slots.entry(layout.slot(id(&item))).or_default();
        match parts.last_mut().filter(|part| part.len() < defaults::BATCH) {
            Some(part) => part.push(item),
            None => parts.push(vec![item]),
        }
    }
    let of_slot = |(slot, parts): (Slot, Vec<Vec<T>>)| parts.into_iter().map(move |part| (slot, part));
    slots.into_iter().flat_map(of_slot).collect()
}
