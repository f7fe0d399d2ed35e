//! Caches how many shards there are, which a server keeps and which never changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::Error;

/// How old the number may be: a server that has lost it is told it again.
const FRESH: Duration = Duration::from_secs(10);
/// How long a caller waits for it where an older one is known: the server that keeps it may be away, and what the caller
/// wants on another one.
const WAIT_LIMIT: Duration = Duration::from_millis(250);

/// How many shards there are, as a server has last said.
#[derive(Debug, Default)]
pub(crate) struct ShardCount(Mutex<Option<(u16, Instant)>>);

impl ShardCount {
    pub(crate) fn known(&self) -> Option<u16> {
        self.state().map(|(shards, _)| shards)
    }

    pub(crate) fn set(&self, shards: u16) {
        *self.state() = Some((shards, Instant::now()));
    }

    /// The number; it is asked for by `ask`, which sets it, where none is known or that is old. An old one counts until the
    /// server answers.
    pub(crate) async fn get(&self, ask: impl Future<Output = Result<u16, Error>>) -> Result<u16, Error> {
        let before = *self.state();
        let Some((shards, at)) = before else {
            return ask.await;
        };
        if at.elapsed() < FRESH {
            return Ok(shards);
        }
        // Other callers do not wait meanwhile.
        self.set(shards);
        match timeout(WAIT_LIMIT, ask).await {
            Ok(Err(error)) if !error.is_transient() => {
                *self.state() = before;
                Err(error)
            }
            Ok(Ok(shards)) => Ok(shards),
            Ok(Err(_)) | Err(_) => Ok(shards),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<(u16, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::redis::Role;

    fn error(transient: bool) -> Result<u16, Error> {
        Err(Role::Store.error(transient, "as the test wants it"))
    }

    /// The answer of a server that hangs.
    async fn late() -> Result<u16, Error> {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        error(true)
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_that_is_known_counts_while_its_server_is_away() {
        let count = ShardCount::default();
        assert!(count.get(ready(error(true))).await.is_err(), "none is known");
        count.set(64);
        for _ in 0..3 {
            tokio::time::advance(FRESH).await;
            let began = Instant::now();
            assert_eq!(count.get(late()).await.unwrap(), 64);
            assert_eq!(began.elapsed(), WAIT_LIMIT);
            assert_eq!(count.get(late()).await.unwrap(), 64);
            assert_eq!(began.elapsed(), WAIT_LIMIT, "one caller waits, and no other");
            tokio::time::advance(FRESH).await;
            assert_eq!(count.get(ready(error(true))).await.unwrap(), 64);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_number_that_is_old_is_asked_for_and_a_wrong_one_is_no_number() {
        let count = ShardCount::default();
        count.set(64);
        tokio::time::advance(FRESH).await;
        for _ in 0..2 {
            assert!(count.get(ready(error(false))).await.is_err());
        }
        let ask = async {
            count.set(16);
            Ok(16)
        };
        assert_eq!(count.get(ask).await.unwrap(), 16);
        assert_eq!(count.get(late()).await.unwrap(), 16);
    }
}
