//! Changes of many callers in few calls.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::change::{Changed, change};
use super::database::Database;
use crate::Error;
use crate::redis::{LARGE, Role, Rounds};
use crate::store::{Change, Stamped};

/// Makes the changes of concurrent callers together, and gives each caller its own answers.
#[derive(Debug)]
pub(super) struct Merging {
    database: Arc<Database>,
    rounds: Rounds<Request>,
}

/// The changes of one caller.
#[derive(Debug)]
struct Request {
    changes: Vec<Change>,
    answer: oneshot::Sender<Result<Changed, Error>>,
}

impl Merging {
    /// Within a runtime.
    pub(super) fn start(database: Arc<Database>) -> Self {
        let shared = Arc::clone(&database);
        Self {
            database,
            rounds: Rounds::start(move |requests| round(Arc::clone(&shared), requests)),
        }
    }

    pub(super) async fn change(&self, changes: Vec<Change>) -> Result<Changed, Error> {
        // In a Cluster a master that does not answer would hold up those who want nothing of it.
        if changes.is_empty() || changes.len() >= LARGE || self.database.is_clustered() {
            return change(&self.database, &changes).await;
        }
        let (answer, answered) = oneshot::channel();
        self.rounds.ask(Request { changes, answer });
        let ended = |_| Role::Store.error(false, "the call ended without an answer");
        answered.await.map_err(ended)?
    }
}

async fn round(database: Arc<Database>, mut requests: Vec<Request>) {
    // Who has gone away has nothing changed.
    requests.retain(|request| !request.answer.is_closed());
    let changes: Vec<_> = requests
        .iter()
        .flat_map(|request| request.changes.iter().cloned())
        .collect();
    match database.within(change(&database, &changes)).await {
        Ok(Stamped { now, found }) => {
            let mut found = found.into_iter();
            for Request { changes, answer } in requests {
                let found = found.by_ref().take(changes.len()).collect();
                let _ = answer.send(Ok(Stamped { now, found }));
            }
        }
        Err(error) => error.tell_all(requests.into_iter().map(|request| request.answer).collect()),
    }
}
