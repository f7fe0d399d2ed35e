//! Verbs within a transaction of a service's own.

use async_trait::async_trait;

use super::{Change, NewRow, Note, Stamped};
use crate::task::target::Target;
use crate::{Answer, Error, Scheduled, Task, TaskId};

/// A transaction that a service has opened, joined by the store that keeps its rows there.
///
/// What is done through it happens when the service commits, and does not happen otherwise. Each SQL store makes one
/// of a connection by its `join`; [`Scheduler`](crate::Scheduler) and [`Context`](crate::Context) take it.
/// The contracts are those of the methods of the same names of [`Store`](super::Store). An error that is transient, such as a
/// deadlock, means that the service has to roll back and may repeat its transaction.
#[diagnostic::on_unimplemented(note = "`store.join(&mut transaction)` makes one of a transaction of sqlx")]
#[async_trait]
pub trait Transaction: Send {
    /// As [`Store::insert`](super::Store::insert).
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error>;

    /// As [`Store::change`](super::Store::change). Rows that are running are not locked by it.
    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error>;

    /// As [`Store::find`](super::Store::find).
    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error>;

    /// Ends a claim as done, with this noted of it, if the row is still running and of that version; says whether it was
    /// so.
    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error>;
}

#[async_trait]
impl<T: Transaction + ?Sized> Transaction for &mut T {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        (**self).insert(rows).await
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        (**self).change(changes).await
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        (**self).find(target).await
    }

    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        (**self).finish(id, version, note).await
    }
}
