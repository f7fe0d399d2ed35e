//! Tasks that are taken and finished by calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::super::Error;
use super::super::ledger::Ledger;
use super::super::side::Side;

/// How many take and finish at once.
const RECEIVERS: usize = 2;

/// A side whose tasks are taken and finished by calls.
pub(super) trait Taking: Side {
    /// What a taken task is finished by.
    type Taken: Send + 'static;

    /// Takes those that are due, or none after a while. It is not abandoned: what a bare command has taken would be lost.
    fn take(&self) -> impl Future<Output = Result<Vec<(usize, Self::Taken)>, Error>> + Send;

    /// Says that these are done with.
    fn finish(&self, taken: Vec<Self::Taken>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// [`Side::drain`] by calls.
pub(super) async fn drain<S: Taking>(side: &S, ledger: &Arc<Ledger>) -> Result<usize, Error> {
    let finished = Arc::new(AtomicUsize::new(0));
    let mut receiving = JoinSet::new();
    for _ in 0..RECEIVERS {
        let (side, ledger, finished) = (side.clone(), Arc::clone(ledger), Arc::clone(&finished));
        receiving.spawn(async move {
            while finished.load(Ordering::Relaxed) < ledger.len() {
                let (numbers, taken): (Vec<_>, Vec<_>) = side.take().await?.into_iter().unzip();
                if numbers.is_empty() {
                    // The others may have taken the last.
                    continue;
                }
                for &number in &numbers {
                    ledger.start(number);
                }
                side.finish(taken).await?;
                let all = finished.fetch_add(numbers.len(), Ordering::Relaxed) + numbers.len();
                if all >= ledger.len() {
                    ledger.end();
                }
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(received) = receiving.join_next().await {
        received??;
    }
    Ok(finished.load(Ordering::Relaxed))
}
