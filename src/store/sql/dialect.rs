//! What differs between databases in the statements that all of them have.

/// The words of a database.
///
/// A batch is one value, whatever its size, which a statement reads as a table `j`. New rows and what becomes of rows have so
/// many values each that these come as they are, in statements for fixed numbers of rows.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Dialect {
    /// The table.
    pub(in crate::store) table: &'static str,
    /// What follows the name of a table where a statement has to go by an index, whatever the planner thinks of it.
    pub(in crate::store) by_index: fn(index: &str) -> String,
    /// A batch of ids, and the id of each.
    pub(in crate::store) batch: &'static str,
    pub(in crate::store) id: &'static str,
    /// Kind, key and place of each of a batch of kinds and keys.
    pub(in crate::store) kind: &'static str,
    pub(in crate::store) key: &'static str,
    pub(in crate::store) place: &'static str,
    /// What a row is known by within the database, and goes by quickest.
    pub(in crate::store) row: &'static str,
    /// No bytes.
    pub(in crate::store) nothing: &'static str,
    /// A text as the bytes that it is.
    pub(in crate::store) bytes_of: fn(column: &str) -> String,
    /// For each row of what stands before it, the rows of another query, whose numbers are in its column `at_row`: as `j`.
    pub(in crate::store) for_each: fn(rows: &str) -> String,
    /// The number of the row that [`for_each`](Self::for_each) gives.
    pub(in crate::store) each: &'static str,
    /// The last so many characters of the two texts, one behind the other.
    pub(in crate::store) appended: fn(first: &str, second: &str, most: usize) -> String,
    /// How many rows go into one statement.
    pub(in crate::store) most: usize,
}

impl Dialect {
    /// The name of an index of the table, as a statement has to go by it.
    pub(super) fn index(&self, name: &str) -> String {
        (self.by_index)(&format!("{}_{name}", self.table))
    }
}

/// For how many rows the statement is that has room for so many. There are few of them, each parsed once for a connection;
/// what is not given is NULL.
pub(super) fn width(rows: usize) -> usize {
    let double = rows.next_power_of_two();
    let half_as_many_more = double / 4 * 3;
    match rows <= half_as_many_more {
        true => half_as_many_more,
        false => double,
    }
}

/// Values for so many rows.
pub(super) fn places(columns: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(","));
    vec![row; rows].join(",")
}
