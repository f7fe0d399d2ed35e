//! What scripts answer.

use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

use super::codec::{self, Brief};
use crate::redis::Role;
use crate::timestamp::duration;
use crate::{Error, Task, TaskId, Timestamp};

/// The answer of every script: see `row.lua`.
#[derive(Debug)]
pub(super) struct Answer {
    /// The time by the clock of the server that has the slot.
    pub(super) now: Timestamp,
    pub(super) soon: Soon,
    /// What the script itself gives.
    pub(super) found: Value,
}

/// In how long what was written needs a look; none: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Soon {
    pub(super) wake: Option<Duration>,
    pub(super) due: Option<Duration>,
    pub(super) purge: Option<Duration>,
}

impl FromRedisValue for Answer {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::Array(values) = value else {
            return Err("expected an array from the script".into());
        };
        let [
            Value::Int(now),
            Value::Int(wake),
            Value::Int(due),
            Value::Int(purge),
            found,
        ] = <[Value; 5]>::try_from(values).map_err(|_| "expected five values from the script")?
        else {
            return Err("expected four numbers from the script".into());
        };
        Ok(Self {
            now: Timestamp::from_millis(now),
            soon: Soon {
                wake: span(wake),
                due: span(due),
                purge: span(purge),
            },
            found,
        })
    }
}

/// So many ms; none if negative.
pub(super) fn span(millis: i64) -> Option<Duration> {
    (millis >= 0).then(|| duration(millis))
}

/// An array of a script, read from its beginning.
#[derive(Debug)]
pub(super) struct Items(std::vec::IntoIter<Value>);

impl Items {
    pub(super) fn of(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(super) fn value(&mut self) -> Result<Value, Error> {
        self.0.next().ok_or_else(|| unexpected(&Value::Nil))
    }

    pub(super) fn items(&mut self) -> Result<Self, Error> {
        Self::of(self.value()?)
    }

    pub(super) fn number(&mut self) -> Result<i64, Error> {
        number(&self.value()?)
    }

    /// The number at its end.
    pub(super) fn last_number(&mut self) -> Result<i64, Error> {
        number(&self.0.next_back().unwrap_or(Value::Nil))
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        self.bytes_if_any()?.ok_or_else(|| unexpected(&Value::Nil))
    }

    pub(super) fn bytes_if_any(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::Nil => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|error| Role::Store.error(false, error))
    }

    pub(super) fn id(&mut self) -> Result<TaskId, Error> {
        let bytes = <[u8; 16]>::try_from(self.bytes()?);
        let bytes = bytes.map_err(|bytes| unexpected(&Value::BulkString(bytes)))?;
        Ok(TaskId::from_bytes(bytes))
    }

    /// A row that must be one.
    pub(super) fn task(&mut self, id: TaskId) -> Result<Task, Error> {
        task(id, &self.bytes()?)?.ok_or_else(|| garbled(codec::Garbled(id)))
    }

    pub(super) fn brief(&mut self, id: TaskId) -> Result<Brief, Error> {
        codec::brief(id, &self.bytes()?).map_err(garbled)
    }
}

pub(super) fn number(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

/// The numbers that a script gives, one of each that it was given, as yes and no.
pub(super) fn flags(found: Value) -> Result<Vec<bool>, Error> {
    let mut items = Items::of(found)?;
    let mut flags = Vec::new();
    while !items.is_empty() {
        flags.push(items.number()? == 1);
    }
    Ok(flags)
}

/// The row of an id; none if nobody may see it.
pub(super) fn task(id: TaskId, value: &[u8]) -> Result<Option<Task>, Error> {
    codec::task(id, value).map_err(garbled)
}

pub(super) fn garbled(error: codec::Garbled) -> Error {
    Role::Store.error(false, error)
}

fn unexpected(value: &Value) -> Error {
    // Not the value itself: it may be anybody's payload.
    let what = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "text",
        Value::Array(_) => "an array",
        _ => "something else",
    };
    Role::Store.error(
        false,
        format!("a script answered with {what} where it should not"),
    )
}
