//! Claims on their way to their caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::warn;

use super::Claimed;
use super::apart::start;
use crate::observe::metrics::CLAIM;
use crate::schedule::kernel::Kernel;
use crate::store::{Ending, Event, Guarded, Step};
use crate::task::timestamp::duration;
use crate::{Kind, Task};

/// Claims that are their caller's once it accepts them. If this is dropped they are given back: whoever goes away before
/// has lost nothing.
#[derive(Debug)]
pub(super) struct Offered {
    claimed: Vec<Claimed>,
    confirm: oneshot::Sender<()>,
}

impl Offered {
    pub(super) fn new(kernel: &Arc<Kernel>, claimed: Vec<Claimed>) -> Self {
        let (confirm, confirmed) = oneshot::channel();
        let own = claimed.iter().map(|one| release(kernel, one)).collect();
        let inside = Arc::clone(kernel);
        start(kernel, async move {
            if confirmed.await.is_err() {
                give_back(&inside, own).await;
            }
        });
        Self { claimed, confirm }
    }

    /// For a caller who is there: between this and its having them there is no await.
    pub(super) fn accept(self, kernel: &Kernel) -> Vec<Claimed> {
        let Self { claimed, confirm } = self;
        // Where the runtime ends nobody hears it, and nobody gives back either.
        let _ = confirm.send(());
        for Claimed { claim, task, .. } in &claimed {
            kernel.events.tell(|| task.clone());
            kernel.started(&task.kind, CLAIM, lateness(kernel, task));
            kernel.metrics.given(*claim, &task.kind, &kernel.clock);
        }
        claimed
    }
}

fn lateness(kernel: &Kernel, task: &Task) -> Duration {
    let now = kernel.time.now().unwrap_or(task.updated_at);
    duration(now.millis_since(task.due_at))
}

/// What gives a claim back as it was.
pub(super) fn release(kernel: &Kernel, claimed: &Claimed) -> (Kind, Step) {
    let task = &claimed.task;
    let note = kernel.note_end(Some(task), &Ending::Release, task.updated_at);
    let step = Step::end(task.id, task.version, Ending::Release).noting(note);
    (claimed.task.kind.clone(), step)
}

/// Gives claims back, so that somebody else may have their tasks at once.
pub(super) async fn give_back(kernel: &Kernel, own: Vec<(Kind, Step)>) {
    let (kinds, steps): (Vec<_>, Vec<_>) = own.into_iter().unzip();
    if steps.is_empty() {
        return;
    }
    match kernel.store.advance(&steps).await {
        Ok(came) => {
            for ((step, kind), came) in steps.iter().zip(&kinds).zip(came) {
                if let (Guarded::Done, Event::End { ending, .. }) = (came, &step.event) {
                    kernel.ended(kind, ending);
                }
            }
            kernel.claims.waiting.tell(&kinds);
        }
        Err(error) => warn!(
            %error, claims = steps.len(),
            "claims of a caller who has gone away could not be given back; their tasks wait for the end of their leases"
        ),
    }
}
