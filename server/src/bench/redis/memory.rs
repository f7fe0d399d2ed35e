//! How much memory a Redis takes for tasks that wait.

use redis::aio::MultiplexedConnection;

use super::super::Error;
use super::super::figure::Measured;
use super::super::ledger::Faults;
use super::super::side::Side;
use super::super::work::filled_for_long;
use super::info::info;

/// Fills a side; what else the server is asked meanwhile counts, too.
pub(super) async fn measure<S: Side>(
    connection: &MultiplexedConnection,
    tasks: usize,
    fresh: &impl AsyncFn() -> Result<S, Error>,
) -> Result<Vec<Measured>, Error> {
    let side = fresh().await?;
    let before = info(connection, "memory", "used_memory").await?;
    let done = filled_for_long(&side, tasks).await?;
    let after = info(connection, "memory", "used_memory").await?;
    side.close().await?;
    Ok(vec![Measured {
        tasks,
        bytes_each: Some((after - before) / tasks as f64),
        faults: Faults::lost(tasks - done.min(tasks)),
        ..Measured::default()
    }])
}
