//! A row as a table has it, and back.

use super::codec::{self, Garbled, read_headers, state};
#[cfg(feature = "sqlite")]
use super::statements::{BECOMES, NEW};
use super::value::{Cells, Value};
use crate::store::NewRow;
use crate::store::table::{Found, Unreadable, Write};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// The columns of a row, in the order in which they are read; headers and payload are behind them.
pub(super) const COLUMNS: [&str; 18] = [
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

/// Reads the columns of a row one after the other.
struct Reader(std::vec::IntoIter<Value>);

impl Reader {
    fn next(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Odd)
    }

    fn int(&mut self, column: &'static str) -> Result<i64, Garbled> {
        self.perhaps_int(column)?.ok_or(Garbled::Type(column))
    }

    fn perhaps_int(&mut self, column: &'static str) -> Result<Option<i64>, Garbled> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Int(int) => Ok(Some(int)),
            _ => Err(Garbled::Type(column)),
        }
    }

    fn number<N: TryFrom<i64>>(&mut self, column: &'static str) -> Result<N, Garbled> {
        let int = self.int(column)?;
        N::try_from(int).map_err(|_| Garbled::Value(column, int))
    }

    fn time(&mut self, column: &'static str) -> Result<Timestamp, Garbled> {
        self.int(column).map(Timestamp::from_millis)
    }

    fn perhaps_time(&mut self, column: &'static str) -> Result<Option<Timestamp>, Garbled> {
        Ok(self.perhaps_int(column)?.map(Timestamp::from_millis))
    }

    fn text(&mut self, column: &'static str) -> Result<String, Garbled> {
        self.perhaps_text(column)?.ok_or(Garbled::Type(column))
    }

    fn perhaps_text(&mut self, column: &'static str) -> Result<Option<String>, Garbled> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(Garbled::Type(column)),
        }
    }

    /// A text for people, which nothing goes by.
    fn words(&mut self) -> Option<String> {
        match self.next() {
            Value::Text(text) => Some(text),
            Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        }
    }
}

/// The id of a column.
pub(super) fn id(value: &Value) -> Option<TaskId> {
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
fn task(cells: Cells) -> Result<Task, Garbled> {
    let id = cells.first().and_then(id).ok_or(Garbled::Id)?;
    let mut read = Reader(cells.into_iter());
    read.next();
    Ok(Task {
        id,
        kind: Kind::from(read.text("kind")?),
        key: read.perhaps_text("key")?.map(Key::from),
        state: state(read.int("state")?)?,
        version: read.number("version")?,
        due_at: read.time("due_at")?,
        planned_at: read.time("planned_at")?,
        wake_at: read.perhaps_time("wake_at")?,
        attempt: read.number("attempt")?,
        started: match read.int("started")? {
            0 => false,
            1 => true,
            other => return Err(Garbled::Value("started", other)),
        },
        stalls: read.number("stalls")?,
        max_attempts: match read.perhaps_int("max_attempts")? {
            Some(most) => Some(u32::try_from(most).map_err(|_| Garbled::Value("max_attempts", most))?),
            None => None,
        },
        hop: read.number("hop")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        finished_at: read.perhaps_time("finished_at")?,
        owner: read.words(),
        last_error: read.words(),
        headers: read_headers(&read.text("headers")?)?,
        payload: match read.next() {
            Value::Bytes(payload) => payload,
            _ => return Err(Garbled::Type("payload")),
        },
    })
}

/// What was found in rows with all columns.
pub(in crate::store) fn found(rows: Vec<Cells>, key_of: impl Fn(&Cells) -> Option<(Kind, Key)>) -> Found {
    let mut found = Found::default();
    for cells in rows {
        let row = match cells.first() {
            Some(Value::Bytes(row)) => row.clone(),
            Some(Value::Text(row)) => row.clone().into_bytes(),
            _ => Vec::new(),
        };
        let (id, key) = (cells.first().and_then(id), key_of(&cells));
        let live = [State::Scheduled, State::Running].map(|state| Value::Int(codec::number(state).into()));
        let is_live = cells.get(3).is_some_and(|state| live.contains(state));
        match task(cells) {
            Ok(task) => found.rows.push(task),
            Err(garbled) => found.unreadable.push(Unreadable {
                row,
                id,
                key,
                is_live,
                why: garbled.to_string(),
                is_away: false,
            }),
        }
    }
    found
}

/// A time as a column has it.
pub(super) fn time(time: Timestamp) -> Value {
    Value::Int(time.as_millis())
}

/// A version as a column has it: no row has one that is no number there.
pub(super) fn version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
}

/// The values of new rows, as [`Dialect::insert`](super::Dialect::insert) takes them.
pub(super) fn new_values(rows: &[NewRow], now: Timestamp) -> Result<Vec<Value>, sqlx::Error> {
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
        row.max_attempts
            .map_or(Value::Null, |most| Value::Int(most.into())),
        time(row.created_at),
        time(row.updated_at),
        Value::Text(codec::headers(&row.headers)?),
        Value::Bytes(row.payload),
        Value::Text(noted.history),
        Value::of_text(noted.sent),
    ])
}

/// The values of what has become of a row, as [`Dialect::write`](super::Dialect::write) takes them.
pub(super) fn written_values(write: &Write) -> [Value; BECOMES] {
    let row = &write.row;
    [
        Value::Bytes(row.id.as_bytes().to_vec()),
        Value::Int(version(write.before.version)),
        Value::of_time(write.wake_at()),
        Value::Int(codec::number(row.state).into()),
        Value::Int(version(row.version)),
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
        Value::of_text(row.last_error.as_deref()),
        Value::Text(write.noted.history.clone()),
        Value::of_text(write.noted.sent.as_deref()),
    ]
}
