//! Sends wake-ups once more to a backend that has lost them.

use std::time::Duration;

use delayline::backend::{Backend, Departure, SendError, Wake};
use delayline::store::{Page, Paused, Store};
use delayline::{Error, Kind, State, Task, Timestamp, defaults};

/// How often a batch is sent that a backend does not take, and how long to wait in between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// The progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resent {
    /// How many wake-ups were sent so far.
    pub(super) sent: u64,
    /// How many kinds of tasks are finished.
    pub(super) kinds: usize,
    /// How many kinds there are.
    pub(super) of_kinds: usize,
}

/// Sends a wake-up for every scheduled row of a store, each for when it is due: for a backend that came back empty, or
/// another one. Workers may go on meanwhile. `progress` is called after every batch.
///
/// Not needed for safety: the sweep of any worker finds each row when its wake-up is overdue, up to a second late. This
/// spares many rows that lateness. A row that moves on meanwhile gets a wake-up that names a past version and costs one
/// read; one that is on its way on another backend as well gets two, of which one wins.
pub(super) async fn resend(
    store: &dyn Store,
    backend: &dyn Backend,
    mut progress: impl FnMut(&Resent),
) -> Result<Resent, Error> {
    let mut kinds = all_kinds(store).await?;
    // Its rows are never due.
    kinds.retain(|kind| kind.as_str() != Paused::KIND);
    let mut done = Resent {
        sent: 0,
        kinds: 0,
        of_kinds: kinds.len(),
    };
    for kind in kinds {
        let mut page = Page::new(kind, State::Scheduled).limit(defaults::BATCH);
        loop {
            let rows = store.list(&page).await?;
            let Some(last) = rows.last() else { break };
            page.after = Some((last.due_at, last.id));
            let is_last = rows.len() < page.limit;
            let now = store.now().await?;
            let batch = rows.into_iter().map(|row| departure(row, now));
            send(backend, batch.collect(), &mut done, &mut progress).await?;
            if is_last {
                break;
            }
        }
        done.kinds += 1;
        progress(&done);
    }
    Ok(done)
}

async fn all_kinds(store: &dyn Store) -> Result<Vec<Kind>, Error> {
    let mut kinds = Vec::new();
    loop {
        let page = store
            .kinds(State::Scheduled, kinds.last(), defaults::BATCH)
            .await?;
        let is_last = page.len() < defaults::BATCH;
        kinds.extend(page);
        if is_last {
            return Ok(kinds);
        }
    }
}

fn departure(row: Task, now: Timestamp) -> Departure {
    Departure {
        delay: Duration::from_millis(u64::try_from(row.due_at.millis_since(now)).unwrap_or(0)),
        wake: Wake {
            id: row.id,
            kind: row.kind,
            version: row.version,
        },
    }
}

/// Sends a batch, and repeats what the backend did not take of it.
async fn send(
    backend: &dyn Backend,
    mut batch: Vec<Departure>,
    done: &mut Resent,
    progress: &mut impl FnMut(&Resent),
) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        let count = batch.len();
        let Err(SendError { failed, cause }) = backend.send(&batch).await else {
            done.sent += count as u64;
            progress(done);
            return Ok(());
        };
        if tries == TRIES || !cause.is_transient() {
            return Err(cause);
        }
        tries += 1;
        done.sent += (count - failed.len()) as u64;
        batch = failed
            .into_iter()
            .filter_map(|at| batch.get(at).cloned())
            .collect();
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
