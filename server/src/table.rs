//! Tables for people.

use anstream::adapter::strip_str;

use crate::terminal::{HEADER, styled};

/// Rows in columns that are as wide as they have to be, below their names. Cells may have colours.
pub(crate) fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let header = header.map(|name| styled(HEADER, name));
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| wide(&row[column])).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - wide(cell) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How many characters of a cell are seen.
fn wide(cell: &str) -> usize {
    strip_str(cell).to_string().chars().count()
}

/// A text of a task, without what a terminal would take for a command.
pub(crate) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}
