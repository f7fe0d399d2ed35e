//! New rows of many callers, in few calls of the store.

use std::future::Future;
use std::sync::Arc;

use crate::clock::Clock;
use crate::coalescer::{Coalescer, LARGE, Request, call_by_halves};
use crate::store::{AtOnce, NewRow, Stamped, Store};
use crate::store_time::{Heard, StoreTime};
use crate::{Error, Scheduled};

/// Writes the new rows of concurrent callers together, in few calls and so in few commits, and gives each caller its
/// own answer.
#[derive(Debug)]
pub(crate) struct Inserts {
    writer: Arc<Writer>,
    together: Coalescer<NewRow, AnsweredAtOnce>,
}

/// An answer for each row of a caller.
type Answered = Result<Heard<Vec<Result<Scheduled, Error>>>, Error>;

/// The same, but for rows that somebody else has locked.
type AnsweredAtOnce = Result<Heard<Vec<AtOnce>>, Error>;

impl Inserts {
    pub(crate) fn new(store: Arc<dyn Store>, time: Arc<StoreTime>, clock: &Clock) -> Self {
        let clock = clock.clone();
        let writer = Arc::new(Writer { store, time, clock });
        let shared = Arc::clone(&writer);
        let write = move |requests| {
            let writer = Arc::clone(&shared);
            async move { writer.write(requests).await }
        };
        Self {
            together: Coalescer::start(&writer.clock, bytes_of, write),
            writer,
        }
    }

    /// As [`Store::insert`], perhaps in one call with the rows of others.
    pub(crate) async fn insert(&self, rows: Vec<NewRow>) -> Answered {
        if rows.len() >= LARGE {
            return self.writer.insert(rows).await;
        }
        let answered = self.together.ask(rows).await;
        let ended = || Err(Error::unanswered(self.writer.store.name()));
        let Heard { now, at, found } = answered.unwrap_or_else(ended)?;
        let wait = |locked| async { Ok(self.writer.insert(locked).await?.found) };
        let found = AtOnce::all(found, wait).await;
        Ok(Heard { now, at, found })
    }
}

/// How many bytes a new row adds to a call.
pub(crate) fn bytes_of(row: &NewRow) -> usize {
    let headers = row.headers.iter().map(|(name, value)| name.len() + value.len());
    row.payload.len() + headers.sum::<usize>()
}

/// Calls the store.
#[derive(Debug)]
struct Writer {
    store: Arc<dyn Store>,
    time: Arc<StoreTime>,
    clock: Clock,
}

impl Writer {
    /// Writes the rows of several callers, and answers each. None waits for what another's row waits for.
    async fn write(&self, requests: Vec<Request<NewRow, AnsweredAtOnce>>) {
        let insert = |rows: Vec<NewRow>| async {
            let count = rows.len();
            let Heard { now, at, found } = self.heard(count, self.store.insert_at_once(rows)).await?;
            Ok(((now, at), found))
        };
        call_by_halves(requests, insert, |(now, at), found| Heard { now, at, found }).await;
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Answered {
        let count = rows.len();
        self.heard(count, self.store.insert(rows)).await
    }

    /// What a call gives, if it is an answer for each of so many rows.
    async fn heard<A>(
        &self,
        count: usize,
        call: impl Future<Output = Result<Stamped<Vec<A>>, Error>>,
    ) -> Result<Heard<Vec<A>>, Error> {
        let asked = self.clock.moment();
        let heard = self.time.heard(&asked, call.await?);
        if heard.found.len() == count {
            return Ok(heard);
        }
        Err(Error::miscounted(self.store.name(), heard.found.len(), count))
    }
}
