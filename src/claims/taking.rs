//! Takes what is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::apart::{start, unanswered};
use super::request::Request;
use super::shares::Shares;
use super::{Claimed, Claims};
use crate::kernel::Kernel;
use crate::store::{Claim, Ending, Event, Guarded, Renewal, Step};
use crate::store_time::Heard;
use crate::timestamp::duration;
use crate::verdict::{needs_note, next_wake, refusal, tell_dead};
use crate::{Error, Kind, Task, store};

/// Claims, and gives back what its caller is not there for any more.
///
/// The store is asked apart from the caller: in the midst of its call nobody knows what is claimed, and what a caller has
/// not confirmed to have is not its own.
pub(super) async fn take_apart(claims: &Claims, request: Arc<Request>) -> Result<Vec<Claimed>, Error> {
    let (give, given) = oneshot::channel();
    let inside = claims.clone();
    start(&claims.kernel, async move {
        let taken = match take(&inside, &request).await {
            Ok(taken) => taken,
            Err(error) => {
                let _ = give.send(Err(error));
                return;
            }
        };
        let (confirm, confirmed) = oneshot::channel();
        let kernel = &inside.kernel;
        let lateness: Vec<_> = taken
            .iter()
            .map(|claimed| lateness(kernel, &claimed.task))
            .collect();
        let own: Vec<_> = taken.iter().map(release).collect();
        let started: Vec<_> = match kernel.events.is_heard() {
            true => taken.iter().map(|claimed| claimed.task.clone()).collect(),
            false => Vec::new(),
        };
        // Whoever is gone drops what would confirm.
        let _ = give.send(Ok((taken, confirm)));
        if confirmed.await.is_ok() {
            kernel.counters.started.add(lateness.len());
            started.into_iter().for_each(|task| kernel.events.tell(|| task));
            lateness.into_iter().for_each(|late| kernel.counters.late(late));
        } else {
            give_back(kernel, own).await;
        }
    });
    match given.await {
        Ok(taken) => {
            let (taken, confirm): (_, oneshot::Sender<()>) = taken?;
            // No await between this and the caller.
            let _ = confirm.send(());
            Ok(taken)
        }
        Err(_) => Err(unanswered(&claims.kernel)),
    }
}

/// Claims due tasks, as many as there are places; then ends those that may not be attempted, and notes starts.
async fn take(claims: &Claims, request: &Request) -> Result<Vec<Claimed>, Error> {
    let kernel = &claims.kernel;
    let began = kernel.clock.moment();
    kernel.pauses.refresh(kernel).await;
    let now = kernel.time.now();
    let kinds = request.kinds.iter().filter(|kind| !kernel.pauses.has(kind, now));
    let mut shares = Shares::among(kinds, kernel.claims.next_turn());
    let reserved = claims.budget.take_up_to(claims.bytes);
    let mut bytes = reserved.bytes();
    let mut taken: Vec<Task> = Vec::new();
    loop {
        let room = shares.of(request.max.saturating_sub(taken.len()));
        if room.is_empty() || bytes == 0 {
            break;
        }
        let claim = Claim {
            owner: Arc::clone(&request.owner),
            lease: request.lease,
            room,
            bytes,
        };
        let asked = kernel.clock.moment();
        let heard = match kernel.store.ready(&claim).await {
            Ok(ready) => kernel.time.heard(&asked, ready),
            // What an earlier call has claimed is the caller's.
            Err(error) if !taken.is_empty() => {
                debug!(%error, "fewer due tasks were claimed than there was room for");
                break;
            }
            Err(error) => return Err(error),
        };
        kernel.counters.claimed_when_ready.add(heard.found.len());
        let mut brought: BTreeMap<Kind, usize> = BTreeMap::new();
        for task in &heard.found {
            *brought.entry(task.kind.clone()).or_default() += 1;
            bytes = bytes.saturating_sub(task.payload.len());
        }
        shares.brought(&claim.room, |kind| brought.get(kind).copied().unwrap_or(0));
        taken.extend(without_refused(claims, heard).await);
    }
    let taken = noted(claims, request.lease, taken).await;
    drop(reserved);
    if !taken.is_empty() && began.until(&kernel.clock.moment()) >= request.lease {
        // Somebody else's by now, perhaps: nobody is to start these.
        give_back(kernel, taken.iter().map(release).collect()).await;
        return Ok(Vec::new());
    }
    Ok(taken)
}

/// Ends the claims whose tasks may not be attempted any more; gives the others.
async fn without_refused(claims: &Claims, heard: Heard<Vec<Task>>) -> Vec<Task> {
    let kernel = &claims.kernel;
    let mut refused = Vec::new();
    let mut rest = Vec::with_capacity(heard.found.len());
    for task in heard.found {
        let policy = claims.policy_of(&task.kind);
        match refusal(&task, &policy, heard.now) {
            Some(verdict) => {
                let ending = verdict.ending(&task, &policy, heard.now, kernel);
                refused.push((task, ending));
            }
            None => rest.push(task),
        }
    }
    if refused.is_empty() {
        return rest;
    }
    let steps: Vec<_> = refused
        .iter()
        .map(|(task, ending)| Step::end(task.id, task.version, ending.clone()))
        .collect();
    match kernel.store.advance(&steps).await {
        Ok(came) => {
            for ((task, ending), came) in refused.iter().zip(came) {
                if came == Guarded::Done {
                    ended(kernel, task, ending).await;
                }
            }
        }
        Err(error) => warn!(
            %error, claims = refused.len(),
            "tasks that may not be attempted any more could not be ended; it is tried again when their leases have \
             ended"
        ),
    }
    rest
}

/// Notes starts of which the store has to know before they happen; gives the claims that may be started.
async fn noted(claims: &Claims, lease: Duration, taken: Vec<Task>) -> Vec<Claimed> {
    let kernel = &claims.kernel;
    let needs = |task: &Task| needs_note(task, &claims.policy_of(&task.kind));
    let (to_note, mut sure): (Vec<_>, Vec<_>) = taken.into_iter().partition(needs);
    if !to_note.is_empty() {
        let renewal = |task: &Task| Renewal {
            id: task.id,
            version: task.version,
            started: true,
        };
        let renewals: Vec<_> = to_note.iter().map(renewal).collect();
        match kernel.store.renew(&renewals, lease).await {
            Ok(came) => {
                let came = to_note.into_iter().zip(came);
                sure.extend(came.filter_map(|(task, came)| (came == Guarded::Done).then_some(task)));
            }
            Err(error) => warn!(
                %error, claims = to_note.len(),
                "the store could not be told which tasks are about to start, so they wait until their leases have \
                 ended; see that it is up"
            ),
        }
    }
    sure.sort_by_key(|task| (task.due_at, task.id));
    let claimed = |task: Task| {
        let bytes = claims.budget.take(task.payload.len());
        Claimed::new(task, bytes)
    };
    sure.into_iter().map(claimed).collect()
}

/// Does what follows when a claim has ended.
pub(super) async fn ended(kernel: &Kernel, task: &Task, ending: &Ending) {
    kernel.counters.ended(ending);
    if let Ending::Dead { error, give_back } = ending {
        tell_dead(task, task.attempt.saturating_sub(u32::from(*give_back)), error);
    }
    let now = kernel.time.now().unwrap_or(task.updated_at);
    kernel.events.tell(|| store::ended(task, ending, false, now));
    let wake = next_wake(task, ending, now, kernel.clock.instant());
    kernel.send_soon(wake.into_iter().collect()).await;
}

fn lateness(kernel: &Kernel, task: &Task) -> Duration {
    let now = kernel.time.now().unwrap_or(task.updated_at);
    duration(now.millis_since(task.due_at))
}

/// What gives a claim back as it was.
fn release(claimed: &Claimed) -> (Kind, Step) {
    let step = Step::end(claimed.task.id, claimed.task.version, Ending::Release);
    (claimed.task.kind.clone(), step)
}

/// Gives claims back, so that somebody else may have their tasks at once.
async fn give_back(kernel: &Kernel, own: Vec<(Kind, Step)>) {
    let (kinds, steps): (Vec<_>, Vec<_>) = own.into_iter().unzip();
    if steps.is_empty() {
        return;
    }
    match kernel.store.advance(&steps).await {
        Ok(came) => {
            for (step, came) in steps.iter().zip(came) {
                if let (Guarded::Done, Event::End { ending, .. }) = (came, &step.event) {
                    kernel.counters.ended(ending);
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
