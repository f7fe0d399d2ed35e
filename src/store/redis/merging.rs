//! Changes of many callers in few calls.

use std::sync::Arc;

use super::change::{Changed, change};
use super::database::Database;
use crate::Error;
use crate::clock::Clock;
use crate::coalescer::{Coalescer, LARGE, Request, items};
use crate::redis::Role;
use crate::store::{Change, Stamped};

/// Makes the changes of concurrent callers together, and gives each caller its own answers.
#[derive(Debug)]
pub(super) struct Merging {
    database: Arc<Database>,
    together: Coalescer<Change, Made>,
}

type Made = Result<Changed, Error>;

impl Merging {
    /// Within a runtime.
    pub(super) fn start(database: Arc<Database>) -> Self {
        let shared = Arc::clone(&database);
        let make = move |requests| make(Arc::clone(&shared), requests);
        Self {
            database,
            together: Coalescer::start(&Clock::system(), |_| 0, make),
        }
    }

    pub(super) async fn change(&self, changes: Vec<Change>) -> Made {
        // In a Cluster a master that does not answer would hold up those who want nothing of it.
        if changes.is_empty() || changes.len() >= LARGE || self.database.is_clustered() {
            return change(&self.database, &changes).await;
        }
        let made = self.together.ask(changes).await;
        made.unwrap_or_else(|| Err(Role::Store.error(false, "the call ended without an answer")))
    }
}

async fn make(database: Arc<Database>, requests: Vec<Request<Change, Made>>) {
    match database.within(change(&database, &items(&requests))).await {
        Ok(Stamped { now, found }) => {
            let mut found = found.into_iter();
            for Request { items, answer, .. } in requests {
                let found = found.by_ref().take(items.len()).collect();
                let _ = answer.send(Ok(Stamped { now, found }));
            }
        }
        Err(error) => error.tell_all(requests.into_iter().map(|request| request.answer).collect()),
    }
}
