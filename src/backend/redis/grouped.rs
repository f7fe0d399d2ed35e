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
    let mut items = items.into_iter();
    if layout.slots == 1 {
        // Nothing to work out, one by one.
        let mut parts = Vec::new();
        loop {
            let part: Vec<_> = items.by_ref().take(defaults::BATCH).collect();
            if part.is_empty() {
                return parts;
            }
            parts.extend(layout.all().next().map(|slot| (slot, part)));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_a_part_of_its_slot_in_order() {
        for slots in [1, 7] {
            let layout = Layout { epoch: 3, slots };
            let id = |number: &u128| TaskId::from_bytes(number.to_be_bytes());
            let parts = grouped(0..5_000, layout, id);
            let mut all = Vec::new();
            for (slot, part) in parts {
                assert!((1..=defaults::BATCH).contains(&part.len()));
                assert!(part.iter().all(|number| layout.slot(id(number)) == slot));
                assert!(part.is_sorted());
                all.extend(part);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..5_000));
        }
    }
}
