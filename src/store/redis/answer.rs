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
    /// The time by the clock of the server that has the shard.
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

/// Rows with their ids, each of which may be one that cannot be read.
pub(super) type Tasks = Vec<(TaskId, Result<Task, Error>)>;

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

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        bytes(self.value()?)
    }

    /// A count.
    pub(super) fn count(&mut self) -> Result<usize, Error> {
        Ok(usize::try_from(self.number()?).unwrap_or(0))
    }

    pub(super) fn text(&mut self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|error| Role::Store.error(false, error))
    }

    /// Texts up to the end.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, Error> {
        let mut texts = Vec::new();
        while !self.is_empty() {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    pub(super) fn id(&mut self) -> Result<TaskId, Error> {
        let bytes = <[u8; 16]>::try_from(self.bytes()?);
        let bytes = bytes.map_err(|bytes| unexpected(&Value::BulkString(bytes)))?;
        Ok(TaskId::from_bytes(bytes))
    }

    /// A row, given as its head and its payload.
    pub(super) fn task(&mut self, id: TaskId) -> Result<Task, Error> {
        let head = self.bytes()?;
        task(id, &head, &self.bytes()?)
    }

    /// Rows, each an array of its id, its head and its payload, up to the end.
    pub(super) fn tasks(&mut self) -> Result<Tasks, Error> {
        let mut tasks = Vec::new();
        while !self.is_empty() {
            let mut row = self.items()?;
            let id = row.id()?;
            tasks.push((id, row.task(id)));
        }
        Ok(tasks)
    }

    pub(super) fn brief(&mut self, id: TaskId) -> Result<Brief, Error> {
        brief(id, &self.bytes()?)
    }
}

pub(super) fn number(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

pub(super) fn bytes(value: Value) -> Result<Vec<u8>, Error> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(unexpected(&other)),
    }
}

/// The row of an id, of its head and its payload.
pub(super) fn task(id: TaskId, head: &[u8], payload: &[u8]) -> Result<Task, Error> {
    codec::task(id, head, payload).map_err(garbled)
}

/// A row without its payload.
pub(super) fn brief(id: TaskId, value: &[u8]) -> Result<Brief, Error> {
    codec::brief(id, value).map_err(garbled)
}

fn garbled(error: codec::Garbled) -> Error {
    Role::Store.error(false, error)
}

pub(super) fn unexpected(value: &Value) -> Error {
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
