//! What the driver's errors mean.

use sqlx::mysql::MySqlDatabaseError;

use super::NAME;
use crate::Error;
use crate::store::sql::RowError;

/// A table is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}; the store's own tables are made by `MySqlStore::migrate`, or `delayline migrate mysql`")]
struct NoTable(#[source] sqlx::Error);

/// Numbers of errors, as MySQL and MariaDB have them.
mod number {
    pub(super) const DUPLICATE: u16 = 1062;
    pub(super) const NO_SUCH_TABLE: u16 = 1146;
    pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    /// A number that is none.
    pub(super) const OUT_OF_RANGE: u16 = 1690;
    /// MariaDB: a row was written by others since a snapshot was taken.
    pub(super) const RECORD_CHANGED: u16 = 1020;

    /// The server takes no writes, as after a failover, or ends.
    pub(super) const OF_SERVER: &[u16] = &[1053, 1290, 1792, 1836];

    /// A value, a constraint, or a limit of the server.
    pub(super) const OF_ROW: &[u16] = &[
        1048, 1153, 1118, 1264, 1265, 1301, 1364, 1366, 1406, 1644, 3140, 3819, 4025, 4078,
    ];

    /// A file could not be written, and what an engine failed of: a full disk, or a damaged row.
    pub(super) const OF_SYSTEM: &[u16] = &[1026, 1030];

    /// What time, or an operator, may mend: a server that is full, ends, is in recovery or takes no writes for now,
    /// and a connection or statement that was broken off.
    pub(super) const PASSING: &[u16] = &[
        1021, 1114, // the disk is full, as a file and InnoDB say it
        1037, 1038, 1041, // out of memory
        1040, 1203, 1226, // too many connections
        1047, // not ready (a cluster's node)
        1152, 1158, 1159, 1160, 1161, // the connection broke
        1184, // the same
        1206, 1637, // no room for more locks, or more transactions
        1317, 1927, // killed
        1969, 3024, // out of time
        2002, 2003, 2006, 2013, // away, as proxies say it
        4031, // idle for too long
    ];
}

fn number_of(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// Whether a row was not written because its id or live key is there.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number_of(error) == Some(number::DUPLICATE)
}

/// Whether a statement names a table that is not there.
pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    number_of(error) == Some(number::NO_SUCH_TABLE)
}

/// Whether a statement failed since a row that it was to write is not as it was.
pub(super) fn is_other(error: &sqlx::Error) -> bool {
    number_of(error) == Some(number::OUT_OF_RANGE)
}

/// Whether the transaction, or the statement outside of one, was undone for the sake of another transaction's.
pub(super) fn is_crossed(error: &sqlx::Error) -> bool {
    use number::{DEADLOCK, RECORD_CHANGED};
    number_of(error).is_some_and(|number| [DEADLOCK, RECORD_CHANGED].contains(&number))
}

/// Whether a statement failed since another transaction has a row locked, or was quicker with it.
pub(super) fn is_in_the_way(error: &sqlx::Error) -> bool {
    is_other(error) || is_crossed(error) || number_of(error) == Some(number::LOCK_WAIT_TIMEOUT)
}

/// Which row a statement has failed of, if of one.
pub(super) fn classify(error: &sqlx::Error) -> Option<RowError> {
    match number_of(error)? {
        number::LOCK_WAIT_TIMEOUT => Some(RowError::Locked),
        number::DUPLICATE => Some(RowError::Taken),
        number if number::OF_ROW.contains(&number) => Some(RowError::Refused(error.to_string())),
        _ => None,
    }
}

/// Whether a statement that writes rows leaves its connection as it was: a row that is in the way says nothing of it.
pub(super) fn leaves_connection<T>(written: &Result<T, sqlx::Error>) -> bool {
    let is_of_row = |error| is_in_the_way(error) || classify(error).is_some();
    written.as_ref().err().is_none_or(is_of_row)
}

/// Whether the server that a connection leads to will not do.
pub(super) fn is_of_server(error: &sqlx::Error) -> bool {
    number_of(error).is_some_and(|number| number::OF_SERVER.contains(&number))
}

/// Whether the error of the system in a message is that the disk is full, or a quota (`ENOSPC`, `EDQUOT`): "Got error 28 "No
/// space left on device" from storage engine", "Error writing file './a1' (errno: 122 - Disk quota exceeded)".
fn is_full(message: &str) -> bool {
    // A file's name may have digits. Chinese messages have a bracket of their own.
    let said = message.rsplit(['(', '（']).next().unwrap_or_default();
    let mut numbers = said.split(|c: char| !c.is_ascii_digit());
    let number = numbers.find(|digits| !digits.is_empty());
    number.is_some_and(|number| ["28", "122"].contains(&number))
}

fn is_transient(error: &sqlx::Error) -> bool {
    let broken = matches!(error, sqlx::Error::Io(_) | sqlx::Error::PoolClosed);
    let passes = |number| {
        number == number::LOCK_WAIT_TIMEOUT
            || number::PASSING.contains(&number)
            || number::OF_SYSTEM.contains(&number)
                && error
                    .as_database_error()
                    .is_some_and(|error| is_full(error.message()))
    };
    broken
        || is_crossed(error)
        || is_duplicate(error)
        || is_of_server(error)
        || number_of(error).is_some_and(passes)
}

/// The store's error for what the driver said.
pub(super) fn failed(error: sqlx::Error) -> Error {
    Error::Store {
        store: NAME,
        transient: is_transient(&error),
        source: match is_missing_table(&error) {
            true => NoTable(error).into(),
            false => error.into(),
        },
    }
}
