//! Claims that are taken and ended without a worker.

mod claimed;
mod detached;
mod ending;
mod guarded_writes;
mod line;
mod offered;
mod request;
mod shared;
mod shares;
mod taking;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::claimed::Claimed;
use self::offered::Offered;
use self::request::Request;
use self::shared::Shared;
use crate::clock::instant_after;
use crate::observe::metrics;
use crate::schedule::kernel::Kernel;
use crate::store::{Renewal, When};
pub use crate::task::claim_id::ClaimId;
use crate::work::budget::Budget;
use crate::work::claimant;
use crate::work::handler::Outcome;
use crate::work::retry::Policy;
use crate::work::verdict::Verdict;
use crate::{Error, Kind, Scheduler, defaults};

/// Claims due tasks for programs that run elsewhere, in any language, and ends those claims.
///
/// Made by [`Scheduler::claims`](crate::Scheduler::claims); a cheap handle: clone it. A claim is known by its
/// [`ClaimId`] alone, so any process over the same store may end it. To take and to end need no
/// [`Worker`](crate::Worker). But wake-ups that are not due go on, and leases that have ended are noticed, only where one
/// runs: at least one, in any process, which need have no handler for these kinds, nor any at all. Where it runs
/// beside the scheduler that these claims are made from, it also ends waits to the millisecond.
///
/// # The claimant
///
/// A claimant starts what it is given at once, and begins no task whose lease may have ended, counted from before it
/// asked. What takes longer it [extends](Self::extend), three times in a lease, say. An end that answers false came too
/// late: the task is another claimant's, was moved, or has ended.
///
/// What counts as an attempt is as with a worker: the start of a task is noted before it is given away where the store has
/// to know of it (it may be the last attempt, or an earlier claim was lost), and else by the first `extend`. So when a
/// claimant goes away at once, the first such loss may not count. Attempts, deadline, backoff and stalls are those of the
/// kind's [`policy`](Self::policy); its concurrency, prefetch and execution timeout are the claimant's own affair.
///
/// # Callers that go away
///
/// Each call comes to its end also if its future is dropped: an end is written, and its wake-up sent. What is claimed for
/// a caller who is gone is given back at once, as it was. Only if the process dies between a claim and its answer, or the
/// answer is lost on its further way, the task waits for the end of its lease.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::MemoryStore;
/// use delayline::claims::ClaimId;
/// use delayline::{Kind, NewTask, Policy, Scheduler, State};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let claims = scheduler.claims().policy("mail.send", Policy::new().max_attempts(5))?;
/// let id = scheduler.schedule(NewTask::new("mail.send", "hello")).await?.task().id;
///
/// // Up to ten tasks; if none is due, wait half a minute for one.
/// let (lease, patience) = (Duration::from_secs(30), Duration::from_secs(30));
/// let taken = claims.wait(&[Kind::from("mail.send")], 10, lease, "mailer-1", patience).await?;
/// assert_eq!((taken.len(), taken[0].task.payload.as_slice()), (1, br#""hello""#.as_slice()));
///
/// // All that its claimant has to keep.
/// let token = taken[0].claim.to_string();
/// let claim: ClaimId = token.parse()?;
/// assert!(claims.extend(claim, lease).await?);
/// assert!(claims.done(claim).await?);
/// assert!(!claims.done(claim).await?, "it has ended");
///
/// assert_eq!(scheduler.find(id).await?.map(|task| task.state), Some(State::Done));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Claims {
    kernel: Arc<Kernel>,
    shared: Arc<Shared>,
    terms: Arc<Terms>,
}

/// The retry policies and limits of a handle and its clones.
#[derive(Clone, Debug)]
struct Terms {
    policies: BTreeMap<Kind, Policy>,
    bytes: usize,
    /// What all calls hold together.
    budget: Budget,
}

impl Scheduler {
    /// Claims of due tasks without a [`Worker`](crate::Worker), by the default policy: for tasks that run elsewhere.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: calls of the store are made in the background.
    pub fn claims(&self) -> Claims {
        let kernel = Arc::clone(&self.kernel);
        let start =
            || -> Arc<dyn Any + Send + Sync> { Arc::new(Shared::start(&kernel.store, &kernel.clock)) };
        let shared = Arc::clone(kernel.shared_by_claims.get_or_init(start));
        Claims {
            shared: shared
                .downcast()
                .unwrap_or_else(|_| unreachable!("nothing else is kept there")),
            kernel,
            terms: Arc::new(Terms {
                policies: BTreeMap::new(),
                bytes: defaults::CLAIM_BYTES,
                budget: Budget::new(defaults::CLAIMS_BYTES),
            }),
        }
    }
}

impl Claims {
    /// Sets when tasks of `kind` are tried again and given up; else that is by [`Policy::default`]. Every process that takes
    /// or ends claims of the kind needs the same.
    pub fn policy(mut self, kind: impl Into<Kind>, policy: Policy) -> Result<Self, Error> {
        let kind = kind.into();
        kind.check()?;
        policy.check()?;
        self.kernel.metrics.handled(&kind);
        Arc::make_mut(&mut self.terms).policies.insert(kind, policy);
        Ok(self)
    }

    /// How many bytes of payloads one call takes; what is claimed last may exceed it. At least 1; default
    /// [`defaults::CLAIM_BYTES`].
    pub fn payload_bytes(mut self, bytes: usize) -> Result<Self, Error> {
        if bytes == 0 {
            return Err(Error::invalid("payload_bytes", 0, "allowed is 1 or more"));
        }
        Arc::make_mut(&mut self.terms).bytes = bytes;
        Ok(self)
    }

    /// How many bytes of payloads are held together by all that this handle and its clones have taken, until each
    /// [`Claimed`] is dropped. At least 1; default [`defaults::CLAIMS_BYTES`]. Each call that is under way may exceed it by
    /// what it claims last; then nothing is taken until there is room again.
    pub fn payload_bytes_in_all(mut self, bytes: usize) -> Result<Self, Error> {
        if bytes == 0 {
            return Err(Error::invalid("payload_bytes_in_all", 0, "allowed is 1 or more"));
        }
        Arc::make_mut(&mut self.terms).budget = Budget::new(bytes);
        Ok(self)
    }

    /// A handle for one of several callers: it and its clones hold up to so many of the bytes that
    /// [all together](Self::payload_bytes_in_all) may hold, so that what one caller does not drop leaves room for the others.
    /// At least 1.
    pub fn share(&self, bytes: usize) -> Result<Self, Error> {
        if bytes == 0 {
            return Err(Error::invalid("share", 0, "allowed is 1 or more"));
        }
        let mut share = self.clone();
        let terms = Arc::make_mut(&mut share.terms);
        terms.budget = self.terms.budget.part(bytes);
        Ok(share)
    }

    /// Whether as many bytes of payloads are held as may be, by [all](Self::payload_bytes_in_all) or by this
    /// [share](Self::share): then nothing is taken, whatever is due.
    pub fn is_full(&self) -> bool {
        !self.terms.budget.has_room()
    }

    /// Claims tasks of `kinds` that are due now, up to `max` in all, for `owner`, which people see in
    /// [`Task::owner`](crate::Task::owner).
    ///
    /// Kinds share the places evenly and leave each other what they do not need; of each the longest due come first.
    /// `max` is 1 to [`defaults::BATCH`], a lease 1 s up to a day, an owner up to 255 bytes. A task that may not be
    /// attempted any more is dead and not given. A kind that follows a [`Check`](crate::expected::Check) is refused: only
    /// a worker asks that.
    pub async fn take(
        &self,
        kinds: &[Kind],
        max: usize,
        lease: Duration,
        owner: &str,
    ) -> Result<Vec<Claimed>, Error> {
        let request = Request::new(self, kinds, max, lease, owner)?;
        told_taken(taking::offer(request).await)
    }

    /// Claims as [`take`](Self::take) does; if nothing is due, waits up to `max_wait` until something is, and gives
    /// nothing if nothing was.
    ///
    /// For all callers that wait in one process for the same kinds one poll asks the store: every
    /// [`defaults::CLAIM_EVERY`], and at once when a task of these kinds is scheduled for now through this scheduler, or is
    /// found due by a worker beside it. One call claims for all of them that wait through clones of one handle for the same
    /// lease and owner, up to [`defaults::BATCH`] tasks and the [bytes](Self::payload_bytes) of one call. The caller
    /// that has waited longest is served first; one whose handle [is full](Self::is_full) is passed over. While no caller
    /// waits, the store is not asked.
    ///
    /// A store that is away is waited for, too: if it still is at the end, that is an error. A call of the store that is
    /// under way at the end is waited for, so a wait may take longer by that. A caller that drops the wait before anything
    /// was claimed has taken nothing.
    pub async fn wait(
        &self,
        kinds: &[Kind],
        max: usize,
        lease: Duration,
        owner: &str,
        max_wait: Duration,
    ) -> Result<Vec<Claimed>, Error> {
        let request = Request::new(self, kinds, max, lease, owner)?;
        let until = instant_after(self.kernel.clock.instant(), max_wait);
        told_taken(line::wait(request, until).await)
    }

    /// The task is done. Says whether the claim still held, as all ends do.
    ///
    /// After an error an end may be repeated. Then false may mean as well that the earlier call had its effect:
    /// [`Scheduler::find`](crate::Scheduler::find) tells.
    pub async fn done(&self, claim: ClaimId) -> Result<bool, Error> {
        count_verb("done", ending::done(self, claim).await)
    }

    /// The attempt failed for this reason: try again `after` this long, or else after the policy's pause. If that was
    /// the last attempt, or the deadline leaves no time for another, the task is dead.
    pub async fn retry(
        &self,
        claim: ClaimId,
        reason: impl Into<String>,
        after: Option<Duration>,
    ) -> Result<bool, Error> {
        if let Some(after) = after {
            When::After(after).check()?;
        }
        let reason = reason.into();
        self.end("retry", claim, Verdict::Failed { reason, after }).await
    }

    /// Snoozes: makes the task due again after this long, and counts no attempt. The deadline of its kind stays as it is.
    pub async fn snooze(&self, claim: ClaimId, after: Duration) -> Result<bool, Error> {
        When::After(after).check()?;
        self.end("snooze", claim, Verdict::Answered(Ok(Outcome::Snooze(after))))
            .await
    }

    /// It can never succeed, for this reason: dead at once.
    pub async fn discard(&self, claim: ClaimId, reason: impl Into<String>) -> Result<bool, Error> {
        let reason = reason.into();
        self.end("discard", claim, Verdict::Answered(Ok(Outcome::Discard(reason))))
            .await
    }

    /// The claim holds for `lease` from now on, also if its lease has ended, unless the task was taken meanwhile.
    pub async fn extend(&self, claim: ClaimId, lease: Duration) -> Result<bool, Error> {
        claimant::check_lease(lease)?;
        let renewal = Renewal {
            id: claim.task_id(),
            version: claim.version(),
            started: true,
        };
        count_verb("extend", ending::extend(self, renewal, lease).await)
    }

    async fn end(&self, verb: &'static str, claim: ClaimId, verdict: Verdict) -> Result<bool, Error> {
        count_verb(verb, ending::end(self, claim, verdict).await)
    }

    fn policy_of(&self, kind: &Kind) -> Policy {
        self.terms.policies.get(kind).cloned().unwrap_or_default()
    }
}

/// Gives the caller what was claimed for it, and records how much that is.
fn told_taken(offered: Result<Offered, Error>) -> Result<Vec<Claimed>, Error> {
    let taken = offered.map(Offered::accept);
    let (answer, count) = match &taken {
        Ok(taken) if taken.is_empty() => ("nothing", 1),
        Ok(taken) => ("given", taken.len()),
        Err(_) => (metrics::ERROR, 1),
    };
    metrics::verb(metrics::CLAIM, answer, count);
    taken
}

/// Tells whether a claim held that was to be ended or extended.
fn count_verb(verb: &'static str, held: Result<bool, Error>) -> Result<bool, Error> {
    let answer = match held {
        Ok(true) => "done",
        Ok(false) => metrics::LOST,
        Err(_) => metrics::ERROR,
    };
    metrics::verb(verb, answer, 1);
    held
}
