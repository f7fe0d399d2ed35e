//! Takes what is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::detached::detached;
use super::offered::{Offered, give_back};
use super::request::Request;
use super::shares::Shares;
use super::{ClaimId, Claimed, Claims};
use crate::observe::metrics::{CLAIM, wakeups};
use crate::schedule::kernel::Kernel;
use crate::store::store_time::Timed;
use crate::store::{Claim, Ending, Guarded, Renewal, Step};
use crate::work::verdict::{needs_note, next_wake, refusal, tell_dead};
use crate::{Error, Kind, Task, store};

/// Claims for a caller that does not wait.
///
/// The store is asked in a task of its own, so that a caller which is dropped during the call leaves no unknown claims, and
/// what it has not accepted is given back.
pub(super) async fn offer(request: Request) -> Result<Offered, Error> {
    let kernel = Arc::clone(&request.claims.kernel);
    let inside = Arc::clone(&kernel);
    detached(&kernel, async move {
        let taken = take(&request, request.max).await?;
        Ok(Offered::new(&inside, taken.claimed))
    })
    .await
}

/// What was claimed, and whether more may be due.
pub(super) struct ClaimedBatch {
    pub(super) claimed: Vec<Claimed>,
    pub(super) more: bool,
}

/// Claims due tasks, as many as there are places; then ends those that may not be attempted, and notes starts.
pub(super) async fn take(request: &Request, places: usize) -> Result<ClaimedBatch, Error> {
    let claims = &request.claims;
    let kernel = &claims.kernel;
    let began = kernel.clock.moment();
    kernel.pauses.refresh(kernel).await?;
    let kinds = request
        .kinds
        .iter()
        .filter(|kind| !kernel.pauses.has(kind, &kernel.time));
    let mut shares = Shares::among(kinds, claims.shared.next_turn());
    let reserved = claims.terms.budget.take_up_to(claims.terms.bytes);
    let mut bytes = reserved.bytes();
    let mut taken: Vec<Task> = Vec::new();
    loop {
        let room = shares.of(places.saturating_sub(taken.len()));
        if room.is_empty() || bytes == 0 {
            break;
        }
        let claim = Claim {
            owner: Arc::clone(&request.owner),
            lease: request.lease,
            room,
            bytes,
            history: kernel.histories(),
        };
        let heard = match kernel.time.of(kernel.store.ready(&claim)).await {
            Ok(heard) => heard,
            // What an earlier call has claimed is the caller's.
            Err(error) if !taken.is_empty() => {
                debug!(%error, "fewer due tasks were claimed than there was room for");
                break;
            }
            Err(error) => return Err(error),
        };
        kernel.counters.claimed_when_ready.add(heard.found.len());
        wakeups(CLAIM, "claimed", heard.found.len());
        let mut brought: BTreeMap<Kind, usize> = BTreeMap::new();
        for task in &heard.found {
            *brought.entry(task.kind.clone()).or_default() += 1;
            bytes = bytes.saturating_sub(task.payload.len());
        }
        shares.brought(&claim.room, |kind| brought.get(kind).copied().unwrap_or(0));
        taken.extend(without_refused(claims, heard).await);
    }
    let mut claimed = note_starts(claims, request.lease, taken).await;
    drop(reserved);
    while !claimed.is_empty() {
        // A slow store may have taken longer than a pause may go unheard.
        let is_heard = kernel.pauses.refresh(kernel).await.is_ok();
        // The lease may have ended meanwhile: then none is to start.
        let is_late = began.until(&kernel.clock.moment()) >= request.lease;
        let may_start =
            |one: &Claimed| is_heard && !is_late && !kernel.pauses.has(&one.task.kind, &kernel.time);
        let (given, kept) = claimed.into_iter().partition::<Vec<_>, _>(may_start);
        claimed = given;
        if kept.is_empty() {
            break;
        }
        // This may take as long again, so pauses and the lease are looked at once more.
        give_back(kernel, &kept).await;
    }
    let more = !shares.of(1).is_empty();
    Ok(ClaimedBatch { claimed, more })
}

/// Ends the claims whose tasks may not be attempted any more; gives the others.
async fn without_refused(claims: &Claims, heard: Timed<Vec<Task>>) -> Vec<Task> {
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
        .map(|(task, ending)| {
            let note = kernel.note_end(Some(task), ending, heard.now);
            Step::end(task.id, task.version, ending.clone()).with_note(note)
        })
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
async fn note_starts(claims: &Claims, lease: Duration, taken: Vec<Task>) -> Vec<Claimed> {
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
        let bytes = claims.terms.budget.take(task.payload.len());
        Claimed::new(task, bytes)
    };
    sure.into_iter().map(claimed).collect()
}

/// Does what follows when a claim has ended.
pub(super) async fn ended(kernel: &Kernel, task: &Task, ending: &Ending) {
    kernel.given_ended(ClaimId::of(task), Some(&task.kind), ending);
    kernel.log_failure(task, ending);
    if let Ending::Dead { error, give_back } = ending {
        tell_dead(task, task.attempt.saturating_sub(u32::from(*give_back)), error);
    }
    let now = kernel.time.now().unwrap_or(task.updated_at);
    kernel.events.publish(|| store::ended(task, ending, now));
    let wake = next_wake(task, ending, now, kernel.clock.instant());
    kernel.send_soon(wake.into_iter().collect()).await;
}
