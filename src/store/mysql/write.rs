//! Writes what has become of rows: rows that become the same by one statement that names them, and others by one that is
//! joined to what it is given, which keeps what it has found before it writes, and so costs half as much again.
//!
//! A statement writes all of its rows or none: what is not as it was makes it fail, since its version would be beyond all
//! numbers. So one that succeeds needs neither a lock before nor a look behind it.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, MySqlConnection};

use super::cells::{Query, hex};
use super::insert::MOST;
use super::sql::{Sql, WIDTHS};
use crate::store::Noted;
use crate::store::sql::codec::{Hex, headers, json, number};
use crate::store::sql::{batches, clip};
use crate::store::table::Write;
use crate::{Task, TaskId, Timestamp};

/// From how many groups of rows that become the same on they are given row by row.
const GROUPS: usize = 4;
/// How many bytes of texts rows may have that are given row by row.
const TEXTS: usize = 256 << 10;
/// How long the values of such a row are beside its texts.
const REST_OF_ROW: usize = 256;

/// Rows that one statement writes.
pub(super) struct Part<'w> {
    pub(super) form: Form,
    pub(super) writes: Vec<&'w Write>,
}

/// How it does.
pub(super) enum Form {
    /// All become the same.
    Alike(Box<Set>),
    /// Each has values of its own; texts among them make the server keep the batch in a file.
    Each { has_texts: bool },
}

/// What becomes of rows, where that differs from what was there.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Set {
    numbers: Vec<(&'static str, Option<i64>)>,
    texts: Vec<(&'static str, Option<String>)>,
    /// Payload and headers, and how many attempts there may be.
    refill: Option<(Vec<u8>, String, Option<u32>)>,
    version: u64,
    /// The version, and the `wake_at` where that matters, that they must have.
    was: (u64, Option<Timestamp>),
}

impl Set {
    fn of(write: &Write) -> Result<Self, sqlx::Error> {
        let Write {
            before, row, noted, ..
        } = write;
        let of = |row: &Task| {
            [
                ("state", Some(number(row.state).into())),
                ("due_at", Some(row.due_at.as_millis())),
                ("planned_at", Some(row.planned_at.as_millis())),
                ("attempt", Some(row.attempt.into())),
                ("stalls", Some(row.stalls.into())),
                ("hop", Some(row.hop.into())),
                ("finished_at", row.finished_at.map(Timestamp::as_millis)),
            ]
        };
        let pairs = of(before).into_iter().zip(of(row));
        let mut numbers: Vec<_> = pairs
            .filter(|(before, after)| before != after)
            .map(|(_, after)| after)
            .collect();
        // A renewal sets these without a new version, so they are never left as they were read.
        numbers.push(("wake_at", row.wake_at.map(Timestamp::as_millis)));
        numbers.push(("updated_at", Some(row.updated_at.as_millis())));
        numbers.push(("started", Some(row.started.into())));
        let mut texts = Vec::new();
        if before.owner != row.owner {
            texts.push(("t.owner = ?", row.owner.clone()));
        }
        if before.last_error != row.last_error {
            texts.push(("t.last_error = ?", error_of(row)));
        }
        if !noted.history.is_empty() {
            let history = Some(noted.history.clone());
            texts.push(("t.history = RIGHT(CONCAT(t.history, ?), 16384)", history));
        }
        if noted.sent.is_some() {
            texts.push(("t.sent = ?", noted.sent.clone()));
        }
        let refill = match write.refill {
            true => Some((row.payload.clone(), headers(&row.headers)?, row.max_attempts)),
            false => None,
        };
        Ok(Self {
            numbers,
            texts,
            refill,
            version: row.version,
            was: (before.version, write.wake_at()),
        })
    }

    fn has_texts(&self) -> bool {
        !self.texts.is_empty() || self.refill.is_some()
    }
}

fn error_of(row: &Task) -> Option<String> {
    row.last_error.as_deref().map(|error| clip(error).to_owned())
}

/// The parts in which rows are written.
pub(super) fn parts(writes: &[Write]) -> Result<Vec<Part<'_>>, sqlx::Error> {
    let mut groups = BTreeMap::<_, (usize, Vec<_>)>::new();
    for (place, write) in writes.iter().enumerate() {
        let (_, group) = groups
            .entry(Set::of(write)?)
            .or_insert_with(|| (place, Vec::new()));
        group.push(write);
    }
    if groups.len() <= GROUPS {
        // What frees a key comes before what takes it.
        let mut groups = Vec::from_iter(groups);
        groups.sort_by_key(|(_, (first, _))| *first);
        let alike = groups.into_iter().map(|(set, (_, writes))| Part {
            form: Form::Alike(Box::new(set)),
            writes,
        });
        return Ok(alike.collect());
    }
    let mut parts = Vec::new();
    let writes = Vec::from_iter(writes);
    for writes in batches(&writes, MOST, TEXTS, |write| REST_OF_ROW + texts_of(write)) {
        let mut has_texts = false;
        for write in writes {
            has_texts |= Set::of(write)?.has_texts();
        }
        let form = match writes {
            // One that is long is given as it is.
            [write] => Form::Alike(Box::new(Set::of(write)?)),
            _ => Form::Each { has_texts },
        };
        let writes = writes.to_vec();
        parts.push(Part { form, writes });
    }
    Ok(parts)
}

/// How many bytes the texts of a row take in JSON, at the most.
fn texts_of(write: &Write) -> usize {
    let Noted { history, sent } = &write.noted;
    let error = write
        .row
        .last_error
        .as_deref()
        .map_or(0, |error| clip(error).len());
    let refill = match write.refill {
        true => 2 * write.row.payload.len() + 2 * of_headers(&write.row),
        false => 0,
    };
    6 * (error + history.len() + sent.as_ref().map_or(0, String::len)) + refill
}

fn of_headers(row: &Task) -> usize {
    let headers = row.headers.iter();
    6 * headers
        .map(|(name, value)| name.len() + value.len() + 6)
        .sum::<usize>()
}

/// Writes these rows if all are as they were and there, else none, or those that are there; says how many.
pub(super) async fn write(
    connection: &mut MySqlConnection,
    sql: &Sql,
    at_once: &str,
    form: &Form,
    writes: &[&Write],
) -> Result<u64, sqlx::Error> {
    match form {
        Form::Alike(set) => {
            let mut written = 0;
            for writes in writes.chunks(MOST) {
                let query = alike(sql, at_once, set, width(writes.len()));
                let query = with_ids(query, writes.iter().map(|write| write.row.id));
                written += query.execute(&mut *connection).await?.rows_affected();
            }
            Ok(written)
        }
        Form::Each { has_texts } => {
            let values: Result<Vec<_>, _> = writes.iter().map(|write| values(write, *has_texts)).collect();
            let text = sqlx::query(AssertSqlSafe(each(at_once, &sql.table, *has_texts)));
            let query = text.bind(format!("[{}]", values?.join(",")));
            Ok(query.execute(connection).await?.rows_affected())
        }
    }
}

/// The statement that writes so many rows alike, but for their ids.
fn alike<'q>(sql: &Sql, at_once: &str, set: &'q Set, width: usize) -> Query<'q> {
    let numbers: Vec<_> = set
        .numbers
        .iter()
        .map(|(name, _)| format!("t.{name} = ?"))
        .collect();
    let texts = set.texts.iter().map(|(text, _)| (*text).to_owned());
    let refill = set.refill.as_ref();
    let refilled = refill.map(|_| "t.payload = ?, t.headers = ?, t.max_attempts = ?".to_owned());
    let sets: Vec<_> = numbers.into_iter().chain(texts).chain(refilled).collect();
    let (version, wake_at) = set.was;
    // Before what it looks at is written.
    let text = format!(
        "{at_once}UPDATE {} t FORCE INDEX (PRIMARY) SET t.version = IF(t.version = ?{}, ?, ~0 + t.version), {}
        WHERE t.id IN ({})",
        sql.table,
        wake_at.map_or("", |_| " AND t.wake_at <=> ?"),
        sets.join(", "),
        vec!["?"; width].join(",")
    );
    let mut query = sqlx::query(AssertSqlSafe(text)).bind(version);
    if let Some(wake_at) = wake_at {
        query = query.bind(wake_at.as_millis());
    }
    query = query.bind(set.version);
    for (_, value) in &set.numbers {
        query = query.bind(*value);
    }
    for (_, text) in &set.texts {
        query = query.bind(text.as_deref());
    }
    match refill {
        Some((payload, headers, most)) => query.bind(&**payload).bind(&**headers).bind(*most),
        None => query,
    }
}

/// For how many ids the statement is that has room for so many.
pub(super) fn width(ids: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= ids).unwrap_or(ids)
}

/// A statement with the ids that are its last values: the last of them again where there are more places.
pub(super) fn with_ids<'q>(query: Query<'q>, ids: impl ExactSizeIterator<Item = TaskId>) -> Query<'q> {
    let mut left = width(ids.len());
    let (mut query, mut last) = (query, None);
    for id in ids {
        query = query.bind(id.as_bytes().to_vec());
        (left, last) = (left - 1, Some(id));
    }
    (0..left).fold(query, |query, _| {
        query.bind(last.map(|id| id.as_bytes().to_vec()))
    })
}

/// Writes rows each with values of its own.
pub(super) fn each(at_once: &str, table: &str, has_texts: bool) -> String {
    let (columns, set) = match has_texts {
        false => ("", ""),
        true => (
            ", owner LONGTEXT CHARACTER SET utf8mb4 PATH '$[14]', last_error LONGTEXT CHARACTER SET utf8mb4 PATH '$[15]',
            history MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$[16]', sent TEXT CHARACTER SET utf8mb4 PATH '$[17]',
            payload LONGTEXT CHARACTER SET utf8mb4 PATH '$[18]', headers LONGTEXT CHARACTER SET utf8mb4 PATH '$[19]',
            max_attempts INT UNSIGNED PATH '$[20]'",
            ", t.owner = j.owner, t.last_error = j.last_error, t.history = RIGHT(CONCAT(t.history, j.history), 16384),
            t.sent = COALESCE(j.sent, t.sent), t.payload = COALESCE(UNHEX(j.payload), t.payload),
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

/// The values of a row among others, as JSON.
fn values(write: &Write, has_texts: bool) -> Result<String, sqlx::Error> {
    let row = &write.row;
    let numbers = json(&(
        Hex(row.id),
        write.before.version,
        write.wake_at(),
        number(row.state),
        row.version,
        row.due_at,
        row.planned_at,
        row.wake_at,
        row.attempt,
        i32::from(row.started),
        row.stalls,
        row.hop,
        row.updated_at,
        row.finished_at,
    ))?;
    if !has_texts {
        return Ok(numbers);
    }
    let headers = match write.refill {
        true => Some(headers(&row.headers)?),
        false => None,
    };
    let texts = json(&(
        &row.owner,
        error_of(row),
        &write.noted.history,
        &write.noted.sent,
        write.refill.then(|| hex(&row.payload)),
        headers,
        row.max_attempts,
    ))?;
    Ok([numbers.trim_end_matches(']'), ",", texts.trim_start_matches('[')].concat())
}
