//! The engine within a transaction that a service has opened.

use async_trait::async_trait;

use super::batch::not_to_be_had;
use super::table_engine::TableEngine;
use crate::store::merging::Answers;
use crate::store::table::Table;
use crate::store::{Change, Ending, Guarded, NewRow, Note, Stamped, Step, Target, Transaction};
use crate::{Answer, Error, Scheduled, Task, TaskId};

/// Answers the calls of a transaction over the table as that transaction has it.
pub(in crate::store) struct EngineTransaction<T>(TableEngine<T>);

impl<T> EngineTransaction<T> {
    pub(super) fn new(engine: TableEngine<T>) -> Self {
        Self(engine)
    }
}

#[async_trait]
impl<T: Table> Transaction for EngineTransaction<T> {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        all(self.0.insert(rows).await?)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        all(self.0.change(changes).await?)
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        self.0.find(target).await
    }

    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        let done = Step::end(id, version, Ending::Done).with_note(note);
        match self.0.advance(&[done]).await?.first() {
            Some(Guarded::Done) => Ok(true),
            Some(Guarded::Lost) => Ok(false),
            // It may still be held: so that is not said to be lost.
            Some(Guarded::Blocked) | None => Err(not_to_be_had(self.0.table.name())),
        }
    }
}

/// What all of a batch were answered, or why one of them was not.
fn all<A>(Stamped { now, found }: Answers<A>) -> Result<Stamped<Vec<A>>, Error> {
    let found = found.into_iter().collect::<Result<_, _>>()?;
    Ok(Stamped { now, found })
}
