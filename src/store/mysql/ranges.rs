//! Ranges of the indexes, of many kinds by one statement.
//!
//! MySQL has no search from which each of many kinds would take only its first rows that MariaDB has too, and neither can be
//! made to jump from kind to kind in an index. So each kind has searches of its own, by values; and for each it is asked
//! which kind is the next in the index, so that one that was not thought of comes to light.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sqlx::{AssertSqlSafe, MySqlConnection, SqlSafeStr};

use super::claim::of_kind;
use super::sql::{ALL, LEAN, NOW, Sql};
use crate::store::sql::codec::span;
use crate::store::sql::{Cells, Driver, Value, number_of, of_ranges};
use crate::store::state_code;
use crate::store::table::{By, Columns, Found, Range, Start};
use crate::{State, Timestamp};

/// For how many kinds there are statements.
const WIDTHS: [usize; 3] = [4, 16, 64];

/// The number of the first row of a kind, in place of that of a range.
const OF_KIND: &str = "-1";

/// A kind as the column has it, which may have been edited by hand into what is no text.
type Name = Vec<u8>;

/// The kinds that there were at the last look, by the states that it was at; only a guess for the next one, which finds those
/// that it lacks.
#[derive(Default)]
pub(super) struct KnownKinds(Mutex<BTreeMap<BTreeSet<State>, BTreeSet<Name>>>);

/// The rows of ranges, all of one kind, or all of each kind in turn; and when, if any statement said so.
pub(super) async fn ranges(
    connection: &mut MySqlConnection,
    sql: &Sql,
    known: &KnownKinds,
    ranges: &[Range],
    columns: Columns,
) -> Result<(Option<Timestamp>, Vec<Found>), sqlx::Error> {
    let states: BTreeSet<_> = ranges.iter().map(|range| range.state).collect();
    let is_of_all = ranges.iter().all(|range| range.kind.is_none());
    let known = || known.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut to_ask = BTreeSet::from([Name::new()]);
    if is_of_all {
        // Before every kind comes the one that is not there.
        to_ask.extend(known().get(&states).into_iter().flatten().cloned());
    }
    let (mut asked, mut there) = (BTreeSet::new(), BTreeSet::new());
    let mut rows = Vec::new();
    while !to_ask.is_empty() {
        let kinds: Vec<_> = to_ask.iter().cloned().collect();
        asked.append(&mut to_ask);
        for kinds in kinds.chunks(WIDTHS[WIDTHS.len() - 1]) {
            let width = WIDTHS.into_iter().find(|width| *width >= kinds.len());
            let width = width.filter(|_| is_of_all).unwrap_or(kinds.len());
            let text = AssertSqlSafe(text(&sql.table, ranges, columns, width)).into_sql_str();
            let kinds = (0..width).map(|place| kinds.get(place).map_or(&[][..], Vec::as_slice));
            let values: Vec<_> = kinds.flat_map(|kind| values(ranges, kind)).collect();
            let found = connection.fetch(text, &values).await?;
            there.extend(found.iter().filter_map(kind_of));
            rows.extend(found);
        }
        to_ask.extend(there.difference(&asked).cloned());
    }
    if is_of_all {
        known().insert(states, there);
    }
    Ok(of_ranges(rows, ranges))
}

/// The kind of a row that was found to tell its kind.
fn kind_of(cells: &Cells) -> Option<Name> {
    match cells.get(1) {
        _ if number_of(cells).is_some() => None,
        Some(Value::Text(kind)) => Some(kind.clone().into_bytes()),
        Some(Value::Bytes(kind)) => Some(kind.clone()),
        _ => None,
    }
}

/// The statement for so many kinds.
pub(super) fn text(table: &str, ranges: &[Range], columns: Columns, width: usize) -> String {
    let columns = match columns {
        Columns::All => ALL,
        Columns::Lean => LEAN,
    };
    let mut of_kind = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        let state = state_code::of(range.state);
        if range.kind.is_none() && !ranges[..place].iter().any(|before| before.state == range.state) {
            of_kind.push(format!(
                "(SELECT {} FROM {table} t FORCE INDEX (`wake`)
                WHERE t.state = {state} AND t.kind > ? ORDER BY t.kind LIMIT 1)",
                columns.replace("{number}", OF_KIND)
            ));
        }
        let (index, time, order) = match range.by {
            By::Due => ("due", "t.due_at", "t.due_at{direction}, t.id{direction}"),
            By::Wake => ("wake", "t.wake_at", "t.wake_at{direction}"),
        };
        let direction = if range.backwards { " DESC" } else { "" };
        let from = match range.from {
            Start::First => format!(" AND {time} IS NOT NULL"),
            Start::Ago(_) => format!(" AND {time} >= {NOW} - ?"),
            Start::After(..) => " AND (t.due_at > ? OR (t.due_at = ? AND t.id > ?))".to_owned(),
        };
        let until = range
            .within
            .map_or_else(String::new, |_| format!(" AND {time} <= {NOW} + ?"));
        of_kind.push(format!(
            "(SELECT {} FROM {table} t FORCE INDEX (`{index}`)
            WHERE t.kind = ? AND t.state = {state}{from}{until} ORDER BY {} LIMIT ?)",
            columns.replace("{number}", &place.to_string()),
            order.replace("{direction}", direction)
        ));
    }
    vec![of_kind.join(" UNION ALL "); width].join(" UNION ALL ")
}

/// The values for one kind.
fn values(ranges: &[Range], kind: &[u8]) -> Vec<Value> {
    let mut values = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        if range.kind.is_none() && !ranges[..place].iter().any(|before| before.state == range.state) {
            values.push(Value::Bytes(kind.to_vec()));
        }
        values.push(match &range.kind {
            Some(kind) => of_kind(kind),
            None => Value::Bytes(kind.to_vec()),
        });
        match range.from {
            Start::First => {}
            Start::Ago(ago) => values.push(Value::Int(span(ago))),
            Start::After(time, id) => {
                let time = Value::of_time(Some(time));
                values.extend([time.clone(), time, Value::Id(id)]);
            }
        }
        values.extend(range.within.map(|within| Value::Int(span(within))));
        values.push(Value::count(range.limit));
    }
    values
}
