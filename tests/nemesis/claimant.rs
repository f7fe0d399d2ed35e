//! A process that claims tasks without a worker, and ends its claims in every way.

use std::path::PathBuf;
use std::time::Duration;

use delayline::claims::{ClaimId, Claimed, Claims};
use delayline::{Error, Kind, Policy};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ends::{self, End, Notes};
use crate::home::{AGAIN, Address, CLAIMED, Home, LEASE};
use crate::now;
use crate::process::Process;
use crate::starts::note;
use crate::worker::STARTS;

/// How many requests of one process wait at once; those of one handle are served together.
const LINES: usize = 3;
/// How many tasks are taken at once.
const AT_ONCE: usize = 4;
/// How long a claimant waits for a task: less than a lease, within which a task must have been started.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// How often a claimant tries to end a claim while it has no answer.
const TRIES: usize = 3;

/// Starts such a process, which records its starts and its ends in files.
pub(crate) fn start(address: &Address, starts: &std::path::Path, ends: &std::path::Path) -> Process {
    let mut environment = address.environment();
    environment.extend([(STARTS, starts.into()), (ends::ENDS, ends.into())]);
    Process::start("claimant::process", &environment)
}

/// Runs such a process; does nothing in any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let told = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(address), Some(starts), Some(ends)) = (Address::told(), told(STARTS), told(ends::ENDS)) else {
        return;
    };
    let home = Home::open(address).await;
    let policy = Policy::new()
        .backoff(Duration::from_millis(100), Duration::from_secs(1))
        .max_attempts(1_000);
    let claimant = Claimant {
        claims: home.scheduler.claims().policy(CLAIMED, policy).unwrap(),
        starts,
        ends: Notes::new(ends),
    };
    let mut lines = JoinSet::new();
    for _ in 0..LINES {
        lines.spawn(claimant.clone().go_on());
    }
    lines.join_all().await;
}

#[derive(Clone)]
struct Claimant {
    claims: Claims,
    starts: PathBuf,
    ends: Notes,
}

impl Claimant {
    async fn go_on(self) {
        loop {
            let asked = now();
            match self.take().await {
                Ok(taken) => {
                    for claimed in taken {
                        tokio::spawn(self.clone().work(claimed, asked));
                    }
                }
                // The store is away, or its table.
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    async fn take(&self) -> Result<Vec<Claimed>, Error> {
        let kinds = [Kind::from(CLAIMED)];
        if fastrand::u8(..4) == 0 {
            return self.claims.take(&kinds, AT_ONCE, LEASE, "claimant").await;
        }
        self.claims
            .wait(&kinds, AT_ONCE, LEASE, "claimant", TIME_LIMIT)
            .await
    }

    /// Starts a task, and ends its claim in one way or another, or not at all.
    async fn work(self, claimed: Claimed, asked: i64) {
        // A claimant begins no task whose lease may have ended.
        if Duration::from_millis(u64::try_from(now() - asked).unwrap_or(0)) >= LEASE {
            return;
        }
        note(&self.starts, &claimed.task, "claim").unwrap();
        let claim = claimed.claim;
        match fastrand::u8(..24) {
            // It disappears.
            0 => {}
            1 => self.end(claim, End::Discard).await,
            2 | 3 => self.end(claim, End::Retry).await,
            4 | 5 => self.end(claim, End::Snooze).await,
            // Late: lost, or held still if no other claimant has taken the task.
            6 => {
                sleep(LEASE * 3 / 2).await;
                self.end(claim, End::Done).await;
            }
            7 | 8 => self.take_long(claim).await,
            _ => {
                sleep(Duration::from_millis(10)).await;
                self.end(claim, End::Done).await;
            }
        }
    }

    /// Takes two leases, and extends the first in time.
    async fn take_long(&self, claim: ClaimId) {
        for _ in 0..6 {
            sleep(LEASE / 3).await;
            if self.ask(claim, End::Extend).await == Some(false) {
                return;
            }
        }
        self.end(claim, End::Done).await;
    }

    /// Ends a claim, and repeats unanswered calls.
    async fn end(&self, claim: ClaimId, end: End) {
        for _ in 0..TRIES {
            if self.ask(claim, end).await.is_some() {
                return;
            }
            sleep(AGAIN).await;
        }
    }

    /// Asks once; none if it is not known whether it was done.
    async fn ask(&self, claim: ClaimId, end: End) -> Option<bool> {
        let asking = self.ends.ask(claim, end);
        let soon = Duration::from_millis(500);
        let held = match end {
            End::Done => self.claims.done(claim).await,
            End::Retry => self.claims.retry(claim, "by chance", Some(soon)).await,
            End::Snooze => self.claims.snooze(claim, soon).await,
            End::Discard => self.claims.discard(claim, "by chance").await,
            End::Extend => self.claims.extend(claim, LEASE).await,
        };
        let held = held.ok()?;
        self.ends.answer(asking, held);
        Some(held)
    }
}
