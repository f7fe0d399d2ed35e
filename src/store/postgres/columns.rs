//! Batches of rows as statements take them: column by column.

use std::time::Duration;

use super::driver::text;
use crate::store::sql::codec::{headers, span};
use crate::store::sql::{BECOMES, NUMBERS, Value, id, written_values};
use crate::store::table::Write;
use crate::store::{NewRow, When};
use crate::task::timestamp::millis;
use crate::{Key, State, Timestamp, defaults};

fn texts<'r, R>(rows: &[&'r R], of: impl Fn(&'r R) -> Option<&'r str>) -> Value {
    Value::Texts(rows.iter().map(|row| of(row).map(text)).collect())
}

fn ints<'r, R>(rows: &[&'r R], of: impl Fn(&'r R) -> Option<i64>) -> Value {
    Value::Ints(rows.iter().map(|row| of(row)).collect())
}

/// New rows, written at a time or else now, of which a channel is told.
pub(super) fn new_rows(
    rows: &[&NewRow],
    now: Option<Timestamp>,
    channel: Option<&str>,
) -> Result<Vec<Value>, sqlx::Error> {
    let all_headers = rows.iter().map(|row| Ok(Some(headers(&row.headers)?)));
    let millis_of = |duration: Duration| Some(span(duration));
    Ok(vec![
        Value::Ints(vec![now.map(Timestamp::as_millis)]),
        Value::of_text(channel),
        Value::Int(millis(defaults::LOOK_AHEAD)),
        Value::Ids(rows.iter().map(|row| row.id).collect()),
        texts(rows, |row| Some(row.kind.as_str())),
        texts(rows, |row| row.key.as_ref().map(Key::as_str)),
        ints(rows, |row| match row.due {
            When::After(delay) => millis_of(delay),
            When::At(_) => None,
        }),
        ints(rows, |row| match row.due {
            When::After(_) => None,
            When::At(time) => Some(time.as_millis()),
        }),
        ints(rows, |row| millis_of(row.overdue_after)),
        ints(rows, |row| row.max_attempts.map(i64::from)),
        Value::Texts(all_headers.collect::<Result<_, sqlx::Error>>()?),
        Value::Blobs(rows.iter().map(|row| Some(row.payload.clone())).collect()),
        texts(rows, |row| row.note.event.as_deref()),
    ])
}

/// What has become of rows, of which a channel is told if one of them is due soon. The first three are what they must be like.
pub(super) fn writes(writes: &[&Write], channel: Option<&str>) -> Result<Vec<Value>, sqlx::Error> {
    let is_soon = |write: &&Write| {
        let soon = write.row.updated_at.after(defaults::LOOK_AHEAD);
        write.row.state == State::Scheduled && write.row.due_at <= soon
    };
    let mut columns: [Vec<Value>; BECOMES] = Default::default();
    for write in writes {
        for (column, value) in columns.iter_mut().zip(written_values(write)) {
            column.push(value);
        }
    }
    let mut values: Vec<_> = columns.into_iter().enumerate().map(column).collect();
    let refill = |write: &&Write| write.refill.then(|| headers(&write.row.headers)).transpose();
    values.extend([
        ints(writes, |write| write.row.max_attempts.map(i64::from)),
        Value::Texts(writes.iter().map(refill).collect::<Result<_, _>>()?),
        Value::Blobs(
            writes
                .iter()
                .map(|write| write.refill.then(|| write.row.payload.clone()))
                .collect(),
        ),
        Value::of_text(channel.filter(|_| writes.iter().any(is_soon))),
    ]);
    Ok(values)
}

/// One of the columns of what has become of rows. Whatever its values are it is of the same type each time, as the statement
/// stays prepared for that.
fn column((place, values): (usize, Vec<Value>)) -> Value {
    match place {
        0 => Value::Ids(values.iter().filter_map(id).collect()),
        1..NUMBERS => Value::Ints(values.iter().map(int).collect()),
        _ => Value::Texts(values.iter().map(text_of).collect()),
    }
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(int) => Some(*int),
        _ => None,
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(value) => Some(text(value)),
        _ => None,
    }
}
