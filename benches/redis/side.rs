//! What both sides can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Error;

/// Names a wake-up, as the id of a task does.
pub(crate) type Id = [u8; 16];

/// One way of having ids come when their time has come.
pub(crate) trait Side: Clone + Send + Sync + Sized + 'static {
    fn open(url: &str) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Has ids come after a delay, all in one call.
    fn add(&self, ids: &[Id], delay: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has each of these ids come after a delay of its own, all in one call.
    fn add_each(&self, ids: &[(Id, Duration)]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has them come no more.
    fn cancel(&self, ids: &[Id]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has them come after another delay.
    fn reschedule(&self, ids: &[Id], delay: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes and finishes until so many have come; gives how late each was, by what `due` says.
    fn drain(
        &self,
        count: usize,
        due: impl Fn(&Id) -> Instant + Send + Sync + Clone + 'static,
    ) -> impl Future<Output = Result<Vec<Duration>, Error>> + Send;
}

/// A side whose ids are taken and finished by calls.
pub(crate) trait Taking: Side {
    /// What a taken id is finished by.
    type Taken: Send + 'static;

    /// Takes some that are due, when there are any.
    fn take(&self) -> impl Future<Output = Result<Vec<(Id, Self::Taken)>, Error>> + Send;

    /// Says that these are done with.
    fn finish(&self, taken: Vec<Self::Taken>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// How many take and finish at once.
const RECEIVERS: usize = 2;

/// [`Side::drain`] by calls.
pub(crate) async fn drain<S: Taking>(
    side: &S,
    count: usize,
    due: impl Fn(&Id) -> Instant + Send + Sync + Clone + 'static,
) -> Result<Vec<Duration>, Error> {
    let left = Arc::new(AtomicUsize::new(count));
    let mut receiving = tokio::task::JoinSet::new();
    for _ in 0..RECEIVERS {
        let (side, left, due) = (side.clone(), left.clone(), due.clone());
        receiving.spawn(async move {
            let mut late = Vec::new();
            while left.load(Ordering::Relaxed) > 0 {
                // The others may have taken the last.
                let taken = tokio::time::timeout(Duration::from_millis(500), side.take()).await;
                let Ok(taken) = taken else { continue };
                let (ids, taken): (Vec<_>, Vec<_>) = taken?.into_iter().unzip();
                let now = Instant::now();
                late.extend(ids.iter().map(|id| now.saturating_duration_since(due(id))));
                side.finish(taken).await?;
                left.fetch_sub(ids.len(), Ordering::Relaxed);
            }
            Ok::<_, Error>(late)
        });
    }
    let mut late = Vec::new();
    while let Some(received) = receiving.join_next().await {
        late.extend(received??);
    }
    Ok(late)
}
