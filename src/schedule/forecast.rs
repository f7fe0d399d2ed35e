//! Counting what is coming.

use std::time::Duration;

use super::Scheduler;
use crate::{Error, Kind, State};

/// Within how many spans one call counts: each is compared with every task that is counted.
const SPANS: usize = 32;

impl Scheduler {
    /// How many scheduled tasks of a kind are due within each of these spans from now, 32 of them at the most, in the order
    /// given; what is overdue is due within every span.
    ///
    /// Each is counted up to [`defaults::FORECAST_LIMIT`](crate::defaults::FORECAST_LIMIT), which stands for that many or more: however many tasks there are,
    /// it is a short look into an index.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use delayline::store::MemoryStore;
    /// use delayline::{NewTask, Scheduler};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let scheduler = Scheduler::new(MemoryStore::new());
    /// let post = |hours: u64| NewTask::new("post.publish", &hours).after(Duration::from_secs(hours * 3_600));
    /// scheduler.schedule_all([0, 1, 2, 30].map(post)).await?;
    ///
    /// let within = [Duration::from_secs(60), Duration::from_secs(86_400)];
    /// assert_eq!(scheduler.forecast("post.publish", &within).await?, [1, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn forecast(&self, kind: impl Into<Kind>, within: &[Duration]) -> Result<Vec<usize>, Error> {
        let kind = kind.into();
        kind.check()?;
        if within.len() > SPANS {
            let spans = format!("{} spans", within.len());
            return Err(Error::invalid(
                "within",
                spans,
                format!("allowed are up to {SPANS}"),
            ));
        }
        let counted = self.kernel.due_within(&kind, State::Scheduled, within).await?;
        Ok(counted.found)
    }
}
