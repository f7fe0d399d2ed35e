//! Writes what has become of rows: rows that become the same by one statement that names them, and others by one that is
//! joined to what it is given, which keeps what it has found before it writes, and so costs half as much again.
//!
//! A statement writes all of its rows or none: what is not as it was makes it fail, since its version would be beyond all
//! numbers. So one that succeeds needs neither a lock before nor a look behind it.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, MySqlConnection, SqlSafeStr};

use super::driver::execute;
use super::insert::MOST;
use super::sql::{Sql, WIDTHS};
use crate::store::sql::codec::{headers, json};
use crate::store::sql::{NUMBERS, Value, batches, clip, written_size, written_values};
use crate::store::state_code;
use crate::store::table::Write;
use crate::{Task, TaskId, Timestamp};

/// From how many groups of rows that become the same on they are given row by row.
const GROUPS: usize = 4;
/// How many bytes of texts rows may have that are given row by row.
const TEXTS: usize = 256 << 10;
/// How long the values of such a row are beside its texts.
const REST_OF_ROW: usize = 256;

/// What becomes of rows, where that differs from what was there: columns and their values.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    columns: Vec<(&'static str, Value)>,
    version: u64,
    /// The version, and the `wake_at` where that matters, that they must have: `was` and `woke` of [`each`].
    was: (u64, Option<Timestamp>),
}

impl Set {
    fn of(write: &Write) -> Result<Self, sqlx::Error> {
        let Write {
            before, row, noted, ..
        } = write;
        let of = |row: &Task| {
            [
                ("state", Value::Int(state_code::of(row.state).into())),
                ("due_at", Value::of_time(Some(row.due_at))),
                ("planned_at", Value::of_time(Some(row.planned_at))),
                ("attempt", Value::Int(row.attempt.into())),
                ("stalls", Value::Int(row.stalls.into())),
                ("hop", Value::Int(row.hop.into())),
                ("finished_at", Value::of_time(row.finished_at)),
            ]
        };
        let pairs = of(before).into_iter().zip(of(row));
        let changed = pairs.filter(|(before, after)| before != after);
        let mut columns: Vec<_> = changed.map(|(_, after)| after).collect();
        // A renewal sets these without a new version, so they are never left as they were read.
        columns.push(("wake_at", Value::of_time(row.wake_at)));
        columns.push(("updated_at", Value::of_time(Some(row.updated_at))));
        columns.push(("started", Value::Int(row.started.into())));
        if before.owner != row.owner {
            columns.push(("owner", Value::of_text(row.owner.as_deref())));
        }
        if before.last_error != row.last_error {
            columns.push(("last_error", Value::of_text(row.last_error.as_deref().map(clip))));
        }
        if !noted.history.is_empty() {
            columns.push(("history", Value::Text(noted.history.clone())));
        }
        if write.refill {
            columns.push(("payload", Value::Bytes(row.payload.clone())));
            columns.push(("headers", Value::Text(headers(&row.headers)?)));
            columns.push(("max_attempts", Value::of_int(row.max_attempts)));
        }
        Ok(Self {
            columns,
            version: row.version,
            was: (before.version, write.wake_at()),
        })
    }

    fn has_texts(&self) -> bool {
        let texts = ["owner", "last_error", "history", "payload"];
        self.columns.iter().any(|(column, _)| texts.contains(column))
    }
}

/// The groups in which rows are written: those that become the same, if there are few such groups.
pub(super) fn groups(writes: &[Write]) -> Result<Vec<Vec<&Write>>, sqlx::Error> {
    let mut groups = BTreeMap::<_, (usize, Vec<_>)>::new();
    for (place, write) in writes.iter().enumerate() {
        let (_, group) = groups
            .entry(Set::of(write)?)
            .or_insert_with(|| (place, Vec::new()));
        group.push(write);
    }
    if groups.len() <= GROUPS {
        // What frees a key comes before what takes it.
        let mut groups = Vec::from_iter(groups.into_values());
        groups.sort_by_key(|(first, _)| *first);
        let groups = groups.iter().flat_map(|(_, writes)| writes.chunks(MOST));
        return Ok(groups.map(<[_]>::to_vec).collect());
    }
    let writes = Vec::from_iter(writes);
    // In JSON a byte takes six at the most.
    let size = |write: &&Write| REST_OF_ROW + 6 * (written_size(write) + headers_size(write));
    Ok(batches(&writes, MOST, TEXTS, size).map(<[_]>::to_vec).collect())
}

fn headers_size(write: &Write) -> usize {
    let headers = write.row.headers.iter().filter(|_| write.refill);
    headers.map(|(name, value)| name.len() + value.len() + 6).sum()
}

/// Writes these rows if all are as they were and there, else none, or those that are there; says how many.
pub(super) async fn write(
    connection: &mut MySqlConnection,
    sql: &Sql,
    at_once: &str,
    writes: &[&Write],
) -> Result<u64, sqlx::Error> {
    let sets: Vec<_> = writes
        .iter()
        .map(|write| Set::of(write))
        .collect::<Result<_, _>>()?;
    match sets.split_first() {
        Some((set, others)) if others.iter().all(|other| other == set) => {
            let (text, mut values) = alike(sql, at_once, set, width(writes.len()));
            with_ids(&mut values, writes.iter().map(|write| write.row.id));
            execute(connection, AssertSqlSafe(text).into_sql_str(), &values).await
        }
        _ => {
            // Texts make the server keep the batch in a file.
            let has_texts = sets.iter().any(Set::has_texts);
            let rows: Vec<_> = writes
                .iter()
                .map(|write| row(write, has_texts))
                .collect::<Result<_, _>>()?;
            let text = AssertSqlSafe(each(at_once, &sql.table, has_texts)).into_sql_str();
            execute(connection, text, &[Value::Text(json(&rows)?)]).await
        }
    }
}

/// The statement that writes so many rows alike, and its values but for their ids.
fn alike(sql: &Sql, at_once: &str, set: &Set, width: usize) -> (String, Vec<Value>) {
    let (version, wake_at) = set.was;
    let mut values = vec![Value::version(version)];
    values.extend(wake_at.map(|wake_at| Value::of_time(Some(wake_at))));
    values.push(Value::version(set.version));
    let mut sets = Vec::new();
    for (column, value) in &set.columns {
        sets.push(match *column {
            "history" => "t.history = RIGHT(CONCAT(t.history, ?), 16384)".to_owned(),
            column => format!("t.{column} = ?"),
        });
        values.push(value.clone());
    }
    // Before what it looks at is written.
    let text = format!(
        "{at_once}UPDATE {} t FORCE INDEX (PRIMARY) SET t.version = IF(t.version = ?{}, ?, ~0 + t.version), {}
        WHERE t.id IN ({})",
        sql.table,
        wake_at.map_or("", |_| " AND t.wake_at <=> ?"),
        sets.join(", "),
        vec!["?"; width].join(",")
    );
    (text, values)
}

/// For how many ids the statement is that has room for so many.
pub(super) fn width(ids: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= ids).unwrap_or(ids)
}

/// Adds ids to the values of a statement, the last of them again where it has more places.
pub(super) fn with_ids(values: &mut Vec<Value>, ids: impl ExactSizeIterator<Item = TaskId>) {
    let (count, first) = (ids.len(), values.len());
    values.extend(ids.map(Value::Id));
    if let Some(last) = values.last().cloned().filter(|_| count > 0) {
        values.resize(first + width(count), last);
    }
}

/// Writes rows each with values of its own.
pub(super) fn each(at_once: &str, table: &str, has_texts: bool) -> String {
    let (columns, set) = match has_texts {
        false => ("", ""),
        true => (
            ", owner LONGTEXT CHARACTER SET utf8mb4 PATH '$[14]', last_error LONGTEXT CHARACTER SET utf8mb4 PATH '$[15]',
            history MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$[16]', payload LONGTEXT CHARACTER SET utf8mb4 PATH '$[17]',
            headers LONGTEXT CHARACTER SET utf8mb4 PATH '$[18]', max_attempts INT UNSIGNED PATH '$[19]'",
            ", t.owner = j.owner, t.last_error = j.last_error, t.history = RIGHT(CONCAT(t.history, j.history), 16384),
            t.payload = COALESCE(UNHEX(j.payload), t.payload),
            t.max_attempts = IF(j.headers IS NULL, t.max_attempts, j.max_attempts),
            t.headers = COALESCE(j.headers, t.headers)",
        ),
    };
    format!(
        "{at_once}UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$[0]', was BIGINT UNSIGNED PATH '$[1]',
            woke BIGINT PATH '$[2]', state TINYINT UNSIGNED PATH '$[3]', version BIGINT UNSIGNED PATH '$[4]',
            due_at BIGINT PATH '$[5]', planned_at BIGINT PATH '$[6]', wake_at BIGINT PATH '$[7]',
            attempt INT UNSIGNED PATH '$[8]', started TINYINT PATH '$[9]', stalls INT UNSIGNED PATH '$[10]',
            hop INT UNSIGNED PATH '$[11]', updated_at BIGINT PATH '$[12]', finished_at BIGINT PATH '$[13]'{columns})) j
        STRAIGHT_JOIN {table} t FORCE INDEX (PRIMARY) ON t.id = UNHEX(j.id)
        SET t.version = IF(t.version = j.was AND (j.woke IS NULL OR t.wake_at = j.woke), j.version, ~0 + t.version),
            t.state = j.state, t.due_at = j.due_at, t.planned_at = j.planned_at, t.wake_at = j.wake_at,
            t.attempt = j.attempt, t.started = j.started, t.stalls = j.stalls, t.hop = j.hop,
            t.updated_at = j.updated_at, t.finished_at = j.finished_at{set}"
    )
}

/// The values of a row among others.
fn row(write: &Write, has_texts: bool) -> Result<Vec<Value>, sqlx::Error> {
    let mut values = Vec::from(written_values(write));
    if !has_texts {
        values.truncate(NUMBERS);
        return Ok(values);
    }
    values.extend(match write.refill {
        true => {
            let most = Value::of_int(write.row.max_attempts);
            let headers = Value::Text(headers(&write.row.headers)?);
            [Value::Bytes(write.row.payload.clone()), headers, most]
        }
        false => [Value::Null, Value::Null, Value::Null],
    });
    Ok(values)
}
