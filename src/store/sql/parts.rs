//! Batches of which some rows are in the way of the others.

/// Into how many parts a batch is split: so the row in the way of 500 others is found in three more steps, each of which
/// may have to wait for it once.
const PARTS: usize = 8;

/// The parts in which a batch is tried again that failed because of some of its rows; none if it is a single row.
pub(in crate::store) fn parts<T>(mut batch: Vec<T>) -> Vec<Vec<T>> {
    if batch.len() < 2 {
        return Vec::new();
    }
    let size = batch.len().div_ceil(PARTS);
    let mut parts = Vec::with_capacity(PARTS);
    while !batch.is_empty() {
        let rest = batch.split_off(size.min(batch.len()));
        parts.push(std::mem::replace(&mut batch, rest));
    }
    parts
}
