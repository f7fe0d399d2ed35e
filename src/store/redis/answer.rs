//! What scripts answer.

use redis::{FromRedisValue, ParsingError, Value};

use crate::redis::Role;
use crate::{Error, TaskId, Timestamp};

/// The answer of every script: see `shard.lua`.
#[derive(Debug)]
pub(super) struct Answer {
    /// The time by the clock of the server that has the shard.
    pub(super) now: Timestamp,
    /// What the script itself gives.
    pub(super) found: Value,
}

impl FromRedisValue for Answer {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::Array(values) = value else {
            return Err("expected an array from the script".into());
        };
        match <[Value; 2]>::try_from(values) {
            Ok([Value::Int(now), found]) => Ok(Self {
                now: Timestamp::from_millis(now),
                found,
            }),
            _ => Err("expected a time and what was found from the script".into()),
        }
    }
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

    fn value(&mut self) -> Result<Value, Error> {
        self.0.next().ok_or_else(|| unexpected(&Value::Nil))
    }

    pub(super) fn items(&mut self) -> Result<Self, Error> {
        Self::of(self.value()?)
    }

    pub(super) fn number(&mut self) -> Result<i64, Error> {
        match self.value()? {
            Value::Int(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        bytes(self.value()?)
    }

    /// A count.
    pub(super) fn count(&mut self) -> Result<usize, Error> {
        Ok(usize::try_from(self.number()?).unwrap_or(0))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, Error> {
        self.number().map(Timestamp::from_millis)
    }

    pub(super) fn text(&mut self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?).map_err(|error| Role::Store.error(false, error))
    }
}

pub(super) fn bytes(value: Value) -> Result<Vec<u8>, Error> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(unexpected(&other)),
    }
}

/// An id, unless somebody else has put something there that is none.
pub(super) fn id(bytes: &[u8]) -> Option<TaskId> {
    bytes.try_into().ok().map(TaskId::from_bytes)
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
