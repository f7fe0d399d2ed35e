//! Groups batches by shard.

use std::collections::BTreeMap;

use super::shards::Shard;
use crate::{TaskId, defaults};

/// Splits a batch into parts of one shard each, none larger than a script takes.
pub(super) fn grouped<T>(
    items: impl IntoIterator<Item = T>,
    shards: u16,
    id: impl Fn(&T) -> TaskId,
) -> Vec<(Shard, Vec<T>)> {
    let mut by_shard: BTreeMap<Shard, Vec<Vec<T>>> = BTreeMap::new();
    let mut items = items.into_iter();
    if shards == 1 {
        // Nothing to compute for each one.
        let mut parts = Vec::new();
        loop {
            let part: Vec<_> = items.by_ref().take(defaults::BATCH).collect();
            if part.is_empty() {
                return parts;
            }
            parts.push((Shard(0), part));
        }
    }
    for item in items {
        let parts = by_shard.entry(Shard::of(id(&item), shards)).or_default();
        match parts.last_mut().filter(|part| part.len() < defaults::BATCH) {
            Some(part) => part.push(item),
            None => parts.push(vec![item]),
        }
    }
    let of_shard = |(shard, parts): (Shard, Vec<Vec<T>>)| parts.into_iter().map(move |part| (shard, part));
    by_shard.into_iter().flat_map(of_shard).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_a_part_of_its_shard_in_order() {
        for shards in [1, 7] {
            let id = |number: &u128| TaskId::from_bytes(number.to_be_bytes());
            let parts = grouped(0..5_000, shards, id);
            let mut all = Vec::new();
            for (shard, part) in parts {
                assert!((1..=defaults::BATCH).contains(&part.len()));
                assert!(part.iter().all(|number| Shard::of(id(number), shards) == shard));
                assert!(part.is_sorted());
                all.extend(part);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..5_000));
        }
    }
}
