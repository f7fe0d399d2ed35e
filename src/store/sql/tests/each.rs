//! A store, as tests use it where no row of a batch has an error of its own.

use crate::store::{Change, NewRow, Stamped, Store};
use crate::{Answer, Error, Scheduled};

/// Its batches; the error of a row is that of the call.
pub(in crate::store) trait Each: Store {
    async fn insert_all(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        each(self.insert(rows).await?)
    }

    async fn change_all(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        each(self.change(changes).await?)
    }
}

impl<S: Store> Each for S {}

fn each<T>(stamped: Stamped<Vec<Result<T, Error>>>) -> Result<Stamped<Vec<T>>, Error> {
    let Stamped { now, found } = stamped;
    let found = found.into_iter().collect::<Result<_, _>>()?;
    Ok(Stamped { now, found })
}
