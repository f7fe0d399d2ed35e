//! Claims rows whose ids and times are known, and finishes them: the least that a database must do.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::Error;
use super::ledger::Ledger;
use super::workload::{BATCH, WRITERS};

/// A table of rows, by the statements of its driver.
pub(crate) trait Rows: Clone + Send + Sync + 'static {
    /// Marks rows as running and reads their payloads; gives how many there were.
    fn claim(&self, numbers: &[usize]) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Marks rows as done; gives how many there were.
    fn finish(&self, numbers: &[usize]) -> impl Future<Output = Result<usize, Error>> + Send;
}

/// Claims each row when it is due, in batches by four connections, and finishes it; gives how many were finished.
pub(crate) async fn drain<R: Rows>(rows: &R, ledger: &Arc<Ledger>) -> Result<usize, Error> {
    // In the order of their numbers they are in the order of time.
    let next = Arc::new(Mutex::new(0_usize));
    let mut working = JoinSet::new();
    for _ in 0..WRITERS {
        let (rows, ledger, next) = (rows.clone(), Arc::clone(ledger), Arc::clone(&next));
        working.spawn(async move {
            let mut finished = 0;
            loop {
                let numbers = due(&ledger, &mut *next.lock().await).await;
                if numbers.is_empty() {
                    return Ok::<_, Error>(finished);
                }
                let claimed = rows.claim(&numbers).await?;
                if claimed < numbers.len() {
                    return Err(format!("{claimed} of {} rows could be claimed", numbers.len()).into());
                }
                for &number in &numbers {
                    ledger.start(number);
                }
                finished += rows.finish(&numbers).await?;
            }
        });
    }
    let mut finished = 0;
    while let Some(worker) = working.join_next().await {
        finished += worker??;
    }
    ledger.end();
    Ok(finished)
}

/// Waits until the next one is due, and takes all that are; none if there are no more.
async fn due(ledger: &Ledger, next: &mut usize) -> Vec<usize> {
    let first = *next;
    if first == ledger.len() {
        return Vec::new();
    }
    let wait = ledger.due(first) * 1_000 - ledger.now();
    if let Ok(wait) = u64::try_from(wait) {
        // As long as a timer says, and perhaps a moment longer: never shorter.
        tokio::time::sleep(Duration::from_micros(wait)).await;
    }
    let now = ledger.now();
    while *next < ledger.len() && *next - first < BATCH && ledger.due(*next) * 1_000 <= now {
        *next += 1;
    }
    (first..*next).collect()
}
