//! Batches that one statement can carry.

/// How many bytes of values one statement carries, unless a single row is longer. Servers take more, but all of it has to
/// be in their memory at once, several times over.
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
