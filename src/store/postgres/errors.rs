//! What the driver's errors mean.

use std::{fmt, io};

use crate::Error;
use crate::store::NewRow;
use crate::store::sql::RowError;
use crate::store::table::Outcome;

/// How many bytes of payload and headers a row may have: what PostgreSQL takes as one message, less what goes beside it.
pub(super) const LONGEST: usize = (1 << 30) - (1 << 16);

/// A table is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}; the store's own tables are made by `PostgresStore::migrate`, or `delayline migrate postgres`")]
struct NoTable(Said);

/// What the server said, and its code. The driver would add which line of PostgreSQL's own source has said it.
#[derive(Debug)]
struct Said(sqlx::Error);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_database_error() {
            Some(error) => {
                let code = error.code().unwrap_or_default();
                write!(f, "{} (SQLSTATE {code})", error.message())
            }
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for Said {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            // It has said all.
            sqlx::Error::Database(_) => None,
            error => error.source(),
        }
    }
}

/// A prepared statement of another client is there, or one of ours is not: the session is shared with others.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}: a pooler gives connections of PostgreSQL to others after each transaction. Of its own connections a store finds \
     that out when it connects, and goes by it; those of a service, whose transactions it joins, have to be led past that \
     pooler, or the pooler has to pool sessions"
)]
struct Shared(Said);

/// The code that PostgreSQL gave.
fn code_of(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether the database gave something up in favour of another transaction: a serialization failure, or a deadlock.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    let code = code_of(error);
    matches!(code.as_deref(), Some("40001" | "40P01"))
}

/// What is told of a text that the database has no characters for.
fn unwritable(error: &sqlx::Error) -> Option<RowError> {
    match code_of(error)?.as_str() {
        // The database's encoding lacks a character, or no text of PostgreSQL has it, as NUL.
        "22P05" | "22021" => Some(RowError::Invalid {
            field: "text",
            value: "of a kind, a key or a header".to_owned(),
            allowed: format!("allowed are characters that the database can keep: {error}"),
        }),
        _ => None,
    }
}

/// Which row a statement has failed of, if of one.
pub(super) fn classify(error: &sqlx::Error) -> Option<RowError> {
    if let Some(error) = unwritable(error) {
        return Some(error);
    }
    match code_of(error)?.as_str() {
        // A lock did not come in time.
        "55P03" => Some(RowError::Locked),
        "23505" => Some(RowError::Taken),
        // A value, a constraint, the check of a view, a limit of the server, or what a trigger raises.
        code if ["22", "23", "44", "54", "P0"]
            .iter()
            .any(|class| code.starts_with(class)) =>
        {
            let text = match error.as_database_error() {
                Some(error) => error.message().to_owned(),
                None => error.to_string(),
            };
            Some(RowError::Refused(text))
        }
        _ => None,
    }
}

/// Why no row of such a kind and key can be kept.
pub(super) fn refuses(row: &NewRow) -> Option<RowError> {
    let key = row.key.as_ref().map(|key| ("key", key.as_str()));
    let mut names = [("kind", row.kind.as_str())].into_iter().chain(key);
    let (field, name) = names.find(|(_, name)| name.contains('\0'))?;
    Some(RowError::Invalid {
        field,
        value: name.to_owned(),
        allowed: "allowed are characters other than NUL".to_owned(),
    })
}

/// Whether the server that a connection leads to will not do: it takes no writes, as a standby after a failover does, or
/// ends.
pub(super) fn is_of_server(error: &sqlx::Error) -> bool {
    let code = code_of(error);
    matches!(
        code.as_deref(),
        Some("25006" | "57P01" | "57P02" | "57P03" | "57P05")
    )
}

fn is_transient(error: &sqlx::Error) -> bool {
    let broken = match error {
        // What the operating system refuses for good, such as a socket that this user may not open.
        sqlx::Error::Io(error) => error.kind() != io::ErrorKind::PermissionDenied,
        _ => false,
    };
    let passes = |code: String| match code.as_str() {
        // The database has been dropped.
        "57P04" => false,
        // A transaction was idle, or took, for too long; or the server does not take writes, now; or a lock did not come; or
        // another transaction has just written another live row of the same key.
        "25P03" | "25P04" | "25006" | "55P03" | "23505" => true,
        // The connection, resources, the operator, the system.
        code => ["08", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class)),
    };
    broken || is_conflict(error) || code_of(error).is_some_and(passes)
}

/// The store's error for what the driver said.
pub(super) fn failed(error: sqlx::Error) -> Error {
    if let Some(Outcome::Refused(error)) = unwritable(&error).map(|error| error.outcome(super::NAME)) {
        return error;
    }
    Error::Store {
        store: super::NAME,
        transient: is_transient(&error),
        source: match code_of(&error).as_deref() {
            Some("42P01") => NoTable(Said(error)).into(),
            Some("42P05" | "26000") => Shared(Said(error)).into(),
            _ => Said(error).into(),
        },
    }
}
