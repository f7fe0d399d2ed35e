//! Rows whose ids do not say where they are.

use std::sync::{Arc, OnceLock};

use super::database::Database;
use super::read::{Extra, Lookup, Seen};
use super::shards::grouped;
use crate::redis::NAME;
use crate::store::batched_calls::CALLS;
use crate::store::coalescer::{Coalescer, Request, call_by_halves};
use crate::{Error, TaskId};

/// Looks for ids in all shards, for concurrent callers together.
///
/// Each look is a call for every shard. Where each caller made its own, half as many of all calls were answered while nodes of a
/// Cluster failed.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// Begins with the first look, which is made within a runtime.
    together: OnceLock<Coalescer<Sought, Result<Seen, Error>>>,
}

/// An id, and what is read of its row.
#[derive(Clone, Copy)]
struct Sought {
    id: TaskId,
    extra: Extra,
}

impl Elsewhere {
    /// Says what there is of each id, or why that is not known.
    pub(super) async fn look(&self, database: &Arc<Database>, ids: Vec<TaskId>, extra: Extra) -> Seen {
        let start = || {
            let (clock, database) = (&database.clock, Arc::downgrade(database));
            let bytes_of = |_: &Sought| size_of::<Sought>();
            Coalescer::start(clock, CALLS, bytes_of, move |requests| {
                let database = database.upgrade();
                async move {
                    // While there are callers, there is their store.
                    if let Some(database) = database {
                        answer(&database, requests).await;
                    }
                }
            })
        };
        let count = ids.len();
        let sought = ids.into_iter().map(|id| Sought { id, extra }).collect();
        let answered = self.together.get_or_init(start).ask(sought).await;
        let answered = answered.unwrap_or_else(|| Err(Error::unanswered(NAME)));
        answered.unwrap_or_else(|error| Seen {
            now: None,
            rows: (0..count).map(|_| Err(error.once_more())).collect(),
        })
    }
}

async fn answer(database: &Database, requests: Vec<Request<Sought, Result<Seen, Error>>>) {
    let call = |sought: Vec<Sought>| async move {
        let shards = database.shards().await?;
        let asked: Vec<_> = sought.iter().map(|sought| Lookup::Id(sought.id)).collect();
        let mut seen = Seen::nothing_of(&asked);
        for (extra, places) in grouped(
            sought
                .iter()
                .zip(0..)
                .map(|(sought, place)| (sought.extra, place)),
        ) {
            let all = (0..shards).map(|shard| (shard, places.clone())).collect();
            seen.look(database, &asked, extra, all).await;
        }
        Ok((seen.now, seen.rows))
    };
    call_by_halves(requests, call, |now, rows| Seen { now, rows }).await;
}
