//! Statements that must touch what they were made for.

/// A statement did not touch the rows that it was made for, though they are locked.
#[derive(Debug, thiserror::Error)]
#[error("{what} touched {touched} of {meant} rows")]
struct Missed {
    what: &'static str,
    touched: u64,
    meant: usize,
}

/// Refuses to go on unless so many rows were touched as were meant.
pub(in crate::store) fn ensure(what: &'static str, touched: u64, meant: usize) -> Result<(), sqlx::Error> {
    if usize::try_from(touched) == Ok(meant) {
        return Ok(());
    }
    let missed = Missed { what, touched, meant };
    Err(sqlx::Error::Protocol(missed.to_string()))
}
