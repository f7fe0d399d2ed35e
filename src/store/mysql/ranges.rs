//! Ranges of the indexes, of many kinds by one statement.
//!
//! MySQL has no search from which each of many kinds would take only its first rows that MariaDB has too, and neither can be
//! made to jump from kind to kind in an index. So each kind has searches of its own, by values; and for each it is asked
//! which kind is the next in the index, so that one that was not thought of comes to light.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::cells::{NUMBER, Query};
use super::read::{Read, span};
use super::sql::{ALL, LEAN, NOW, Sql};
use super::{cells, read};
use crate::State;
use crate::store::Stamped;
use crate::store::sql::codec::{limit, number};
use crate::store::table::{By, Columns, Found, Range, Start};

/// For how many kinds there are statements.
const WIDTHS: [usize; 3] = [4, 16, 64];

/// The number of the first row of a kind, in place of that of a range.
const OF_KIND: i64 = -1;

/// A kind as the column has it, which may have been edited by hand into what is no text.
type Name = Vec<u8>;

/// The kinds that there were at the last look, by the states that it was at; only a guess for the next one, which finds those
/// that it lacks.
#[derive(Default)]
pub(super) struct Known(Mutex<BTreeMap<BTreeSet<State>, BTreeSet<Name>>>);

/// The rows of ranges, all of one kind, or all of each kind in turn.
pub(super) async fn ranges(
    connection: &mut MySqlConnection,
    sql: &Sql,
    known: &Known,
    ranges: &[Range],
    columns: Columns,
) -> Result<Stamped<Vec<Found>>, sqlx::Error> {
    let states: BTreeSet<_> = ranges.iter().map(|range| range.state).collect();
    let is_of_all = ranges.iter().all(|range| range.kind.is_none());
    let known = || known.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut to_ask = BTreeSet::from([Name::new()]);
    if is_of_all {
        // Before every kind comes the one that is not there.
        to_ask.extend(known().get(&states).into_iter().flatten().cloned());
    }
    let (mut asked, mut there) = (BTreeSet::new(), BTreeSet::new());
    let mut rows: Vec<Vec<MySqlRow>> = ranges.iter().map(|_| Vec::new()).collect();
    let mut now = None;
    while !to_ask.is_empty() {
        let kinds: Vec<_> = to_ask.iter().cloned().collect();
        asked.append(&mut to_ask);
        for kinds in kinds.chunks(WIDTHS[WIDTHS.len() - 1]) {
            let width = WIDTHS.into_iter().find(|width| *width >= kinds.len());
            let width = width.filter(|_| is_of_all).unwrap_or(kinds.len());
            let text = text(&sql.table, ranges, columns, width);
            let query = (0..width).fold(sqlx::query(AssertSqlSafe(text)), |query, place| {
                bind(query, ranges, kinds.get(place).map_or(&[], Vec::as_slice))
            });
            for row in query.fetch_all(&mut *connection).await? {
                now = now.max(Some(cells::time(&row, cells::NOW)?));
                let number: i64 = row.try_get(NUMBER)?;
                match usize::try_from(number).ok().and_then(|place| rows.get_mut(place)) {
                    Some(of_range) => of_range.push(row),
                    None => {
                        there.insert(row.try_get(1)?);
                    }
                }
            }
        }
        to_ask.extend(there.difference(&asked).cloned());
    }
    if is_of_all {
        known().insert(states, there);
    }
    let now = match now {
        Some(now) => now,
        None => read::now(connection, sql).await?,
    };
    let found = ranges.iter().zip(rows).map(|(range, rows)| {
        let mut found = Read::of(&rows)?.found(&BTreeMap::new());
        // Of each kind they are in the right order already.
        found.rows.sort_by(|one, other| one.kind.cmp(&other.kind));
        let mut bytes = 0_usize;
        found.rows.retain(|row| {
            let fits = bytes < range.bytes;
            bytes = bytes.saturating_add(row.payload.len());
            fits
        });
        Ok(found)
    });
    let found = found.collect::<Result<_, sqlx::Error>>()?;
    Ok(Stamped { now, found })
}

/// The statement for so many kinds.
pub(super) fn text(table: &str, ranges: &[Range], columns: Columns, width: usize) -> String {
    let columns = match columns {
        Columns::All => ALL,
        Columns::Lean => LEAN,
    };
    let mut of_kind = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        let state = number(range.state);
        if range.kind.is_none() && !ranges[..place].iter().any(|before| before.state == range.state) {
            of_kind.push(format!(
                "(SELECT {columns}, {OF_KIND} FROM {table} t FORCE INDEX (`wake`)
                WHERE t.state = {state} AND t.kind > ? ORDER BY t.kind LIMIT 1)"
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
            "(SELECT {columns}, {place} FROM {table} t FORCE INDEX (`{index}`)
            WHERE t.kind = ? AND t.state = {state}{from}{until} ORDER BY {} LIMIT ?)",
            order.replace("{direction}", direction)
        ));
    }
    vec![of_kind.join(" UNION ALL "); width].join(" UNION ALL ")
}

/// The values for one kind.
fn bind<'q>(mut query: Query<'q>, ranges: &[Range], kind: &[u8]) -> Query<'q> {
    for (place, range) in ranges.iter().enumerate() {
        if range.kind.is_none() && !ranges[..place].iter().any(|before| before.state == range.state) {
            query = query.bind(kind.to_vec());
        }
        query = query.bind(match &range.kind {
            Some(kind) => kind.as_str().into(),
            None => kind.to_vec(),
        });
        query = match range.from {
            Start::First => query,
            Start::Ago(ago) => query.bind(span(ago)),
            Start::After(time, id) => {
                let (time, id) = (time.as_millis(), id.as_bytes().to_vec());
                query.bind(time).bind(time).bind(id)
            }
        };
        if let Some(within) = range.within {
            query = query.bind(span(within));
        }
        query = query.bind(limit(range.limit));
    }
    query
}
