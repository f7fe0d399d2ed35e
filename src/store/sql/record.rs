//! A row as a table has it, and back.

use super::clip::clip;
use super::codec::{self, Corrupt, read_headers};
use super::value::{Cells, Value};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::store::table::Range;
use crate::store::table::{Fault, Found, Unreadable, Write};
use crate::store::{NewRow, state_code};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// The columns of a row, in the order in which they are read; headers and payload are behind them.
pub(in crate::store) const COLUMNS: [&str; 18] = [
    "id",
    "kind",
    "key",
    "state",
    "version",
    "due_at",
    "planned_at",
    "wake_at",
    "attempt",
    "started",
    "stalls",
    "max_attempts",
    "hop",
    "created_at",
    "updated_at",
    "finished_at",
    "owner",
    "last_error",
];

/// How many values a new row has, and how many what becomes of one.
pub(in crate::store) const NEW: usize = 12;
pub(in crate::store) const BECOMES: usize = 17;
/// How many of the latter are its id and numbers; texts are behind them.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) const NUMBERS: usize = 14;

/// Reads the columns of a row one after the other.
struct Reader(std::vec::IntoIter<Value>);

impl Reader {
    fn next(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Odd)
    }

    fn int(&mut self, column: &'static str) -> Result<i64, Corrupt> {
        self.perhaps_int(column)?.ok_or(Corrupt::Type(column))
    }

    fn perhaps_int(&mut self, column: &'static str) -> Result<Option<i64>, Corrupt> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Int(int) => Ok(Some(int)),
            _ => Err(Corrupt::Type(column)),
        }
    }

    fn number<N: TryFrom<i64>>(&mut self, column: &'static str) -> Result<N, Corrupt> {
        let int = self.int(column)?;
        N::try_from(int).map_err(|_| Corrupt::Value(column, int))
    }

    fn state(&mut self) -> Result<State, Corrupt> {
        let code = self.int("state")?;
        state_code::state(code).ok_or(Corrupt::Value("state", code))
    }

    fn time(&mut self, column: &'static str) -> Result<Timestamp, Corrupt> {
        self.int(column).map(Timestamp::from_millis)
    }

    fn perhaps_time(&mut self, column: &'static str) -> Result<Option<Timestamp>, Corrupt> {
        Ok(self.perhaps_int(column)?.map(Timestamp::from_millis))
    }

    fn text(&mut self, column: &'static str) -> Result<String, Corrupt> {
        self.perhaps_text(column)?.ok_or(Corrupt::Type(column))
    }

    fn perhaps_text(&mut self, column: &'static str) -> Result<Option<String>, Corrupt> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(Corrupt::Type(column)),
        }
    }
}

/// The id of a column.
pub(in crate::store) fn id(value: &Value) -> Option<TaskId> {
    match value {
        Value::Bytes(bytes) => Some(TaskId::from_bytes(bytes.as_slice().try_into().ok()?)),
        _ => None,
    }
}

/// The kind of a column.
pub(super) fn kind(value: Value) -> Option<Kind> {
    match value {
        Value::Text(text) => Some(Kind::from(text)),
        _ => None,
    }
}

/// The task of a row that was read with all columns.
fn task(cells: Cells) -> Result<Task, Corrupt> {
    let id = cells.first().and_then(id).ok_or(Corrupt::Id)?;
    let mut read = Reader(cells.into_iter());
    read.next();
    Ok(Task {
        id,
        kind: Kind::from(read.text("kind")?),
        key: read.perhaps_text("key")?.map(Key::from),
        state: read.state()?,
        version: read.number("version")?,
        due_at: read.time("due_at")?,
        planned_at: read.time("planned_at")?,
        wake_at: read.perhaps_time("wake_at")?,
        attempt: read.number("attempt")?,
        started: match read.int("started")? {
            0 => false,
            1 => true,
            other => return Err(Corrupt::Value("started", other)),
        },
        stalls: read.number("stalls")?,
        max_attempts: match read.perhaps_int("max_attempts")? {
            Some(most) => Some(u32::try_from(most).map_err(|_| Corrupt::Value("max_attempts", most))?),
            None => None,
        },
        hop: read.number("hop")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        finished_at: read.perhaps_time("finished_at")?,
        // For people to read: no rule goes by them.
        owner: text(read.next()),
        last_error: text(read.next()),
        headers: read_headers(&read.text("headers")?)?,
        payload: match read.next() {
            Value::Bytes(payload) => payload,
            _ => return Err(Corrupt::Type("payload")),
        },
    })
}

/// The text of a column.
pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text),
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}

/// Where the number of what a row was asked for by stands in an answer, behind headers and payload, and the time, in those of
/// databases that say them; and where what only one database says begins.
const NUMBER: usize = COLUMNS.len() + 2;
const NOW: usize = NUMBER + 1;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) const BEHIND_NOW: usize = NOW + 1;

/// The number of what a row was asked for by.
pub(in crate::store) fn number_of(cells: &Cells) -> Option<usize> {
    match cells.get(NUMBER) {
        Some(Value::Int(number)) => usize::try_from(*number).ok(),
        _ => None,
    }
}

/// The rows that statements give, decoded.
#[derive(Default)]
pub(in crate::store) struct RowsRead {
    /// When the last of them did, if they say so.
    pub(in crate::store) now: Option<Timestamp>,
    pub(in crate::store) found: Found,
}

impl RowsRead {
    pub(in crate::store) fn of(rows: Vec<Cells>) -> Self {
        let mut answer = Self::default();
        answer.add(rows, &[]);
        answer
    }

    /// Adds rows, that were asked for by these keys if by any.
    pub(in crate::store) fn add(&mut self, rows: Vec<Cells>, keys: &[(Kind, Key)]) {
        for cells in rows {
            if let Some(&Value::Int(now)) = cells.get(NOW) {
                self.now = self.now.max(Some(Timestamp::from_millis(now)));
            }
            let row = match cells.first() {
                Some(Value::Bytes(row)) => row.clone(),
                Some(Value::Text(row)) => row.clone().into_bytes(),
                // Nothing but the time.
                Some(Value::Null) => continue,
                _ => Vec::new(),
            };
            let id = cells.first().and_then(id);
            let key = number_of(&cells).and_then(|place| keys.get(place)).cloned();
            let is_live = match cells.get(3) {
                Some(&Value::Int(code)) => state_code::state(code).is_some_and(State::is_live),
                _ => false,
            };
            match task(cells) {
                Ok(task) => self.found.rows.push(task),
                Err(corrupt) => self.found.unreadable.push(Unreadable {
                    row,
                    id,
                    key,
                    is_live,
                    why: corrupt.to_string(),
                    fault: Fault::Row,
                }),
            }
        }
    }
}

/// What was found for each of some ranges, the numbers of which stand in the rows; and when.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn of_ranges(rows: Vec<Cells>, ranges: &[Range]) -> (Option<Timestamp>, Vec<Found>) {
    let mut of_ranges = vec![Vec::new(); ranges.len()];
    let mut now = None;
    for cells in rows {
        match number_of(&cells).and_then(|place| of_ranges.get_mut(place)) {
            Some(of_range) => of_range.push(cells),
            None => now = now.max(RowsRead::of(vec![cells]).now),
        }
    }
    let found = ranges.iter().zip(of_ranges).map(|(range, rows)| {
        let mut answer = RowsRead::of(rows);
        now = now.max(answer.now);
        // Of each kind they are in the right order already.
        answer.found.rows.sort_by(|one, other| one.kind.cmp(&other.kind));
        let mut bytes = 0_usize;
        answer.found.rows.retain(|row| {
            let fits = bytes < range.bytes;
            bytes = bytes.saturating_add(row.payload.len());
            fits
        });
        answer.found
    });
    let found = found.collect();
    (now, found)
}

/// The time that a statement for nothing else gives.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn time_of(rows: &[Cells]) -> Result<Timestamp, sqlx::Error> {
    counted(rows).0.ok_or(sqlx::Error::RowNotFound)
}

/// The numbers of rows, each behind the time of the statement.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(in crate::store) fn counted(rows: &[Cells]) -> (Option<Timestamp>, Vec<usize>) {
    let int = |cells: &Cells, column| match cells.get(column) {
        Some(Value::Int(int)) => Some(*int),
        _ => None,
    };
    let now = rows
        .first()
        .and_then(|row| int(row, 0))
        .map(Timestamp::from_millis);
    let count = |row| int(row, 1).and_then(|count| usize::try_from(count).ok());
    let counts = rows.iter().map(|row| count(row).unwrap_or(0));
    (now, counts.collect())
}

/// A time as a column has it.
pub(in crate::store) fn time(time: Timestamp) -> Value {
    Value::Int(time.as_millis())
}

/// The values of new rows, in the order in which statements take them.
pub(in crate::store) fn new_values(rows: &[&NewRow], now: Timestamp) -> Result<Vec<Value>, sqlx::Error> {
    let mut values = Vec::with_capacity(NEW * rows.len());
    for new in rows {
        values.extend(values_of(new, now)?);
    }
    Ok(values)
}

fn values_of(new: &NewRow, now: Timestamp) -> Result<[Value; NEW], sqlx::Error> {
    let (row, noted) = new.row(now);
    Ok([
        Value::Bytes(row.id.as_bytes().to_vec()),
        Value::Text(row.kind.to_string()),
        Value::of_text(row.key.as_ref().map(Key::as_str)),
        time(row.due_at),
        time(row.planned_at),
        Value::of_time(row.wake_at),
        Value::of_int(row.max_attempts),
        time(row.created_at),
        time(row.updated_at),
        Value::Text(codec::headers(&row.headers)?),
        Value::Bytes(row.payload),
        Value::Text(noted.history),
    ])
}

/// The values of what has become of a row, in the order in which statements take them.
pub(in crate::store) fn written_values(write: &Write) -> [Value; BECOMES] {
    let row = &write.row;
    [
        Value::Bytes(row.id.as_bytes().to_vec()),
        Value::version(write.before.version),
        Value::of_time(write.wake_at()),
        Value::Int(state_code::of(row.state).into()),
        Value::version(row.version),
        time(row.due_at),
        time(row.planned_at),
        Value::of_time(row.wake_at),
        Value::Int(row.attempt.into()),
        Value::Int(row.started.into()),
        Value::Int(row.stalls.into()),
        Value::Int(row.hop.into()),
        time(row.updated_at),
        Value::of_time(row.finished_at),
        Value::of_text(row.owner.as_deref()),
        Value::of_text(row.last_error.as_deref().map(clip)),
        Value::Text(write.noted.history.clone()),
    ]
}
