//! Ends and extends claims.

use std::future::Future;
use std::time::Duration;

use super::detached::detached;
use super::taking::ended;
use super::{ClaimId, Claims};
use crate::clock::backoff::Backoff;
use crate::schedule::kernel::Kernel;
use crate::store::{Ending, Guarded, Renewal, Step, Target};
use crate::work::lost_answer::became;
use crate::work::verdict::Verdict;
use crate::{Error, State, Task};

/// For how long a row is waited for that another transaction has locked: verbs of ours keep one for milliseconds.
const LOCKED_FOR: Duration = Duration::from_secs(3);

/// Ends a claim as done, which needs no look at its row where of all kinds the same is noted.
pub(super) async fn done(claims: &Claims, claim: ClaimId) -> Result<bool, Error> {
    let inside = claims.clone();
    detached(&claims.kernel, async move {
        // What is noted of it may be another thing than of other kinds.
        let task = match inside.kernel.histories().are_alike() {
            true => None,
            false => held(&inside.kernel, claim).await?,
        };
        let held = write(&inside, claim, task.as_ref(), Ending::Done).await?;
        if held {
            inside.kernel.given_ended(claim, None, &Ending::Done);
            tell_done(&inside.kernel, claim).await;
        }
        Ok(held)
    })
    .await
}

/// Publishes what is done, of which only the name is written here, if there is a listener.
async fn tell_done(kernel: &Kernel, claim: ClaimId) {
    if !kernel.events.is_heard() {
        return;
    }
    if let Ok(Some(task)) = kernel.store.find(&Target::Id(claim.task_id())).await
        && task.version == claim.version() + 1
    {
        kernel.events.publish(|| task);
    }
}

/// Ends a claim by what came of it, as its task and the policy of its kind say.
pub(super) async fn end(claims: &Claims, claim: ClaimId, verdict: Verdict) -> Result<bool, Error> {
    let inside = claims.clone();
    detached(&claims.kernel, async move {
        let kernel = &inside.kernel;
        let Some(task) = held(kernel, claim).await? else {
            kernel.counters.lost_claims.add(1);
            return Ok(false);
        };
        let now = match kernel.time.now() {
            Some(now) => now,
            None => kernel.time.ask(&*kernel.store).await?.now(kernel.clock.instant()),
        };
        let ending = verdict.ending(&task, &inside.policy_of(&task.kind), now, kernel);
        let held = write(&inside, claim, Some(&task), ending.clone()).await?;
        if held {
            ended(kernel, &task, &ending).await;
        }
        Ok(held)
    })
    .await
}

/// Moves the end of a lease.
pub(super) async fn extend(claims: &Claims, renewal: Renewal, lease: Duration) -> Result<bool, Error> {
    let inside = claims.clone();
    detached(&claims.kernel, async move {
        let kernel = &inside.kernel;
        // One that was written may be written again.
        let written = until_written(kernel, || inside.shared.renewals.write((renewal, lease))).await?;
        Ok(count_lost(kernel, written == Written::Held))
    })
    .await
}

async fn write(claims: &Claims, claim: ClaimId, task: Option<&Task>, ending: Ending) -> Result<bool, Error> {
    let kernel = &claims.kernel;
    let note = kernel.note_end(task, &ending, kernel.time.now().unwrap_or_default());
    let state = ending.leaves();
    let step = Step::end(claim.task_id(), claim.version(), ending).with_note(note);
    let held = match until_written(kernel, || claims.shared.ends.write(step.clone())).await? {
        Written::Held => true,
        Written::Lost => false,
        Written::LostMeanwhile => became(&*kernel.store, claim, task, state).await?,
    };
    Ok(count_lost(kernel, held))
}

/// Counts a claim that did not hold.
fn count_lost(kernel: &Kernel, held: bool) -> bool {
    kernel.counters.lost_claims.add(usize::from(!held));
    held
}

/// The task of a claim that still holds.
async fn held(kernel: &Kernel, claim: ClaimId) -> Result<Option<Task>, Error> {
    let row = kernel.store.find(&Target::Id(claim.task_id())).await?;
    Ok(row.filter(|row| row.state == State::Running && row.version == claim.version()))
}

/// What came of writing the end of a claim, or of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// It held, and that is written.
    Held,
    /// It did not hold.
    Lost,
    /// It does not hold any more after a try of which nothing is known: which may have ended it.
    LostMeanwhile,
}

/// What a claim was: asks again for a moment while its row is locked.
async fn until_written<A>(kernel: &Kernel, ask: impl Fn() -> A) -> Result<Written, Error>
where
    A: Future<Output = Result<Guarded, Error>>,
{
    let clock = &kernel.clock;
    let until = clock.instant() + LOCKED_FOR;
    let mut backoff = Backoff::CALLS;
    let mut lost = Written::Lost;
    loop {
        match ask().await? {
            Guarded::Done => return Ok(Written::Held),
            Guarded::Lost => return Ok(lost),
            Guarded::Blocked if clock.instant() >= until => return Err(blocked(kernel)),
            Guarded::Blocked => clock.pause(backoff.failed(clock.instant())).await,
        }
        lost = Written::LostMeanwhile;
    }
}

fn blocked(kernel: &Kernel) -> Error {
    Error::Store {
        store: kernel.store.name(),
        transient: true,
        source: format!(
            "the task's row is locked by another transaction, or out of reach, for {LOCKED_FOR:?}; nothing was \
             written unless an answer was lost"
        )
        .into(),
    }
}
