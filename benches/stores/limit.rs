//! The bare statements: a batch each, by the driver alone.

use uuid::Uuid;

use crate::Error;

/// The least that a database must do to hold rows, and to have known ones claimed and finished.
pub(crate) trait Limit: Clone + Send + Sync + 'static {
    /// Writes rows that are due in an hour.
    fn insert(&self, ids: &[Uuid]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Marks rows as running and reads their payloads.
    fn claim(&self, ids: &[Uuid]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Marks rows as done.
    fn finish(&self, ids: &[Uuid]) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Fails unless so many rows were touched as there are ids.
pub(crate) fn all(touched: usize, ids: &[Uuid]) -> Result<(), Error> {
    if touched == ids.len() {
        return Ok(());
    }
    Err(format!("{touched} of {} rows were touched", ids.len()).into())
}
