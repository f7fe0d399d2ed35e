//! Batches that one statement can carry.

use crate::store::NewRow;

/// How many bytes of values one statement carries, unless a single row is longer. Servers take more, but all of it has to
/// be in their memory at once, several times over.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) const STATEMENT: usize = 4 << 20;

/// The batches in which rows go into statements: each at most so many, and not more bytes than `budget` unless it is a
/// single row.
pub(in crate::store) fn batches<T>(
    mut rows: &[T],
    count: usize,
    budget: usize,
    size: impl Fn(&T) -> usize,
) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = |row: &&T| {
            bytes = bytes.saturating_add(size(row));
            bytes <= budget
        };
        let count = rows.iter().take(count).take_while(fits).count();
        let (now, later) = rows.split_at_checked(count.max(1))?;
        rows = later;
        Some(now)
    })
}

/// How many bytes the values of a new row take in a statement, at the most, but for those that are always short.
pub(in crate::store) fn size(row: &NewRow) -> usize {
    // Each `"` of a header, and each control character, is longer in JSON; six times is the most.
    let headers = row
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 6);
    row.kind.as_str().len() + row.payload.len() + 6 * headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_has_more_than_it_may_but_a_single_row() {
        let cut = |sizes: &[usize], count| {
            let batches = batches(sizes, count, 10, |size| *size);
            batches.map(<[usize]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(cut(&[4, 6, 1, 9, 1], 9), [vec![4, 6], vec![1, 9], vec![1]]);
        assert_eq!(cut(&[3, 3, 3, 3], 2), [[3, 3], [3, 3]]);
        assert_eq!(cut(&[1, 11, 1], 9), [[1], [11], [1]]);
        // A sum that is no number.
        assert_eq!(
            cut(&[usize::MAX, usize::MAX, 2], 9),
            [[usize::MAX], [usize::MAX], [2]]
        );
        assert_eq!(cut(&[], 9), [[0; 0]; 0]);
    }
}
