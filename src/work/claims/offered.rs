//! Claims on their way to their caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tracing::warn;

use super::Claimed;
use super::detached::start;
use crate::Task;
use crate::observe::metrics::CLAIM;
use crate::schedule::kernel::Kernel;
use crate::store::{Ending, Guarded, Step};
use crate::task::timestamp::duration;

/// Claims that are their caller's once it accepts them. Dropped before, when its caller has gone away, they are given back.
#[derive(Debug)]
pub(super) struct Offered {
    kernel: Arc<Kernel>,
    claimed: Vec<Claimed>,
}

impl Offered {
    pub(super) fn new(kernel: &Arc<Kernel>, claimed: Vec<Claimed>) -> Self {
        Self {
            kernel: Arc::clone(kernel),
            claimed,
        }
    }

    /// For a caller that is there: between this and its having them there is no await.
    pub(super) fn accept(mut self) -> Vec<Claimed> {
        let claimed = std::mem::take(&mut self.claimed);
        let kernel = &self.kernel;
        for Claimed { claim, task, .. } in &claimed {
            kernel.events.publish(|| task.clone());
            kernel.started(&task.kind, CLAIM, lateness(kernel, task));
            kernel.metrics.given(*claim, &task.kind, &kernel.clock);
        }
        claimed
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.claimed);
        // Where the runtime has ended no store can be called any more.
        if !left.is_empty() && Handle::try_current().is_ok() {
            let kernel = Arc::clone(&self.kernel);
            start(&self.kernel, async move { give_back(&kernel, &left).await });
        }
    }
}

fn lateness(kernel: &Kernel, task: &Task) -> Duration {
    let now = kernel.time.now().unwrap_or(task.updated_at);
    duration(now.millis_since(task.due_at))
}

/// Gives claims back as they were, so that other callers may have their tasks at once.
pub(super) async fn give_back(kernel: &Kernel, left: &[Claimed]) {
    if left.is_empty() {
        return;
    }
    let release = |Claimed { task, .. }: &Claimed| {
        let note = kernel.note_end(Some(task), &Ending::Release, task.updated_at);
        Step::end(task.id, task.version, Ending::Release).with_note(note)
    };
    let steps: Vec<_> = left.iter().map(release).collect();
    match kernel.store.advance(&steps).await {
        Ok(came) => {
            let given_back = left.iter().zip(came);
            for (Claimed { task, .. }, _) in given_back.filter(|(_, came)| *came == Guarded::Done) {
                kernel.ended(&task.kind, &Ending::Release);
            }
            kernel.due.raise_all(left.iter().map(|one| &one.task.kind));
        }
        Err(error) => warn!(
            %error, claims = left.len(),
            "claims of a caller who has gone away could not be given back; their tasks wait for the end of their leases"
        ),
    }
}
