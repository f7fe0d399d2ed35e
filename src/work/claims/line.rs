//! Callers who wait for due tasks, and the poll that claims for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Claimed;
use super::detached::{detached, start};
use super::offered::Offered;
use super::request::Request;
use super::shared::Shared;
use super::taking::{ClaimedBatch, take};
use crate::schedule::kernel::Kernel;
use crate::{Error, Kind, defaults};

/// The callers who wait, by the kinds that they wait for. While there are any for a set of kinds, one poll asks the store
/// on behalf of all of them.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<BTreeMap<BTreeSet<Kind>, Line>>);

#[derive(Debug, Default)]
struct Line {
    /// In the order in which they came.
    waiters: Vec<Waiter>,
    /// Why the last call of the store failed.
    failed: Option<Error>,
    /// One more caller waits.
    came: Arc<Notify>,
}

#[derive(Debug)]
struct Waiter {
    request: Arc<Request>,
    until: Instant,
    /// Closed when the caller has gone away.
    answer: oneshot::Sender<Result<Offered, Error>>,
}

/// Waits in line until there are claims for this request, or until `until`; then gives none.
pub(super) async fn wait(request: Request, until: Instant) -> Result<Offered, Error> {
    let request = Arc::new(request);
    let (kernel, shared) = (&request.claims.kernel, &request.claims.shared);
    loop {
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter {
            request: Arc::clone(&request),
            until,
            answer,
        };
        if let Some(came) = shared.lines.add(&request.kinds, waiter) {
            let polling = Polling {
                shared: Arc::clone(shared),
                kinds: request.kinds.clone(),
                came,
            };
            start(kernel, poll(Arc::clone(kernel), polling));
        }
        // Else the runtime of the poll has ended, and another begins in this one.
        if let Ok(answer) = answered.await {
            return answer;
        }
    }
}

/// Claims for those who wait for these kinds until none does: at once when a signal says that a task may be due, and every
/// [`defaults::CLAIM_EVERY`].
async fn poll(kernel: Arc<Kernel>, polling: Polling) {
    let Polling { shared, kinds, came } = &polling;
    let (clock, lines) = (&kernel.clock, &shared.lines);
    let mut due = kernel.due.subscribe(kinds.clone());
    let mut ask_at = clock.instant();
    while let Some(first_end) = lines.first_end(kinds) {
        tokio::select! {
            biased;
            () = due.raised() => {}
            () = clock.sleep_until(ask_at) => {}
            () = came.notified() => continue,
            () = clock.sleep_until(first_end) => {
                lines.answer_ended(kinds, clock.instant());
                continue;
            }
        }
        due.clear();
        if let Some((request, places)) = lines.next(kinds) {
            let asked = clock.instant();
            let claiming = Arc::clone(&request);
            // By itself, as a store may panic.
            match detached(&kernel, async move { take(&claiming, places).await }).await {
                Ok(ClaimedBatch { claimed, more }) => {
                    let at_once = more && !claimed.is_empty();
                    ask_at = if at_once {
                        asked
                    } else {
                        asked + defaults::CLAIM_EVERY
                    };
                    lines.hand_out(&request, claimed);
                }
                Err(error) if error.is_transient() => {
                    ask_at = clock.instant() + defaults::CLAIM_EVERY;
                    lines.failed(kinds, error);
                }
                Err(error) => {
                    ask_at = asked;
                    lines.refuse(&request, error);
                }
            }
        } else {
            ask_at = clock.instant() + defaults::CLAIM_EVERY;
        }
        lines.answer_ended(kinds, clock.instant());
    }
}

/// Ends a line with its poll, also where the runtime of the poll ends: those who wait in it begin another.
struct Polling {
    shared: Arc<Shared>,
    kinds: BTreeSet<Kind>,
    came: Arc<Notify>,
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.shared.lines.end(&self.kinds, &self.came);
    }
}

impl Lines {
    fn lines(&self) -> MutexGuard<'_, BTreeMap<BTreeSet<Kind>, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one to the end of its line; if it is the first, a poll is to be started that hears of those who follow.
    fn add(&self, kinds: &BTreeSet<Kind>, waiter: Waiter) -> Option<Arc<Notify>> {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(kinds) {
            line.waiters.push(waiter);
            line.came.notify_one();
            return None;
        }
        let line = lines.entry(kinds.clone()).or_default();
        line.waiters.push(waiter);
        Some(Arc::clone(&line.came))
    }

    /// Removes a line, unless it is another by now.
    fn end(&self, kinds: &BTreeSet<Kind>, came: &Arc<Notify>) {
        let mut lines = self.lines();
        let is_same = lines.get(kinds).is_some_and(|line| Arc::ptr_eq(&line.came, came));
        let ended = is_same.then(|| lines.remove(kinds));
        drop(lines);
        drop(ended);
    }

    /// Returns when the first wait ends. Without waiters it removes the line, and returns none.
    fn first_end(&self, kinds: &BTreeSet<Kind>) -> Option<Instant> {
        let mut lines = self.lines();
        let waiters = &mut lines.get_mut(kinds)?.waiters;
        waiters.retain(|waiter| !waiter.answer.is_closed());
        let first_end = waiters.iter().map(|waiter| waiter.until).min();
        if first_end.is_none() {
            lines.remove(kinds);
        }
        first_end
    }

    /// Returns the first request in line whose handle is not full, and how many tasks it and all that can share its call
    /// want together.
    fn next(&self, kinds: &BTreeSet<Kind>) -> Option<(Arc<Request>, usize)> {
        let mut lines = self.lines();
        let waiters = &mut lines.get_mut(kinds)?.waiters;
        waiters.retain(|waiter| !waiter.answer.is_closed());
        let mut requests = waiters.iter().map(|waiter| &waiter.request);
        let first = Arc::clone(requests.find(|request| !request.claims.is_full())?);
        let together = waiters.iter().filter(|waiter| first.goes_with(&waiter.request));
        let places: usize = together.map(|waiter| waiter.request.max).sum();
        Some((first, places.min(defaults::BATCH)))
    }

    /// Gives claims to those who go with this request, in the order in which they came; gives back what is left.
    fn hand_out(&self, request: &Request, mut claimed: Vec<Claimed>) {
        let kernel = &request.claims.kernel;
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(&request.kinds) else {
            return drop(Offered::new(kernel, claimed));
        };
        line.failed = None;
        let takes = |waiter: &Waiter| request.goes_with(&waiter.request) && !waiter.answer.is_closed();
        while !claimed.is_empty()
            && let Some(at) = line.waiters.iter().position(takes)
        {
            let waiter = line.waiters.remove(at);
            let rest = claimed.split_off(waiter.request.max.min(claimed.len()));
            // If its caller has just gone away, the offer is dropped, which gives its claims back.
            let _ = waiter.answer.send(Ok(Offered::new(kernel, claimed)));
            claimed = rest;
        }
        drop(Offered::new(kernel, claimed));
    }

    /// The store could not be asked, and is to be asked again.
    fn failed(&self, kinds: &BTreeSet<Kind>, error: Error) {
        if let Some(line) = self.lines().get_mut(kinds) {
            line.failed = Some(error);
        }
    }

    /// The store refuses what this request asks for.
    fn refuse(&self, request: &Arc<Request>, error: Error) {
        if let Some(line) = self.lines().get_mut(&request.kinds)
            && let Some(at) = line
                .waiters
                .iter()
                .position(|waiter| Arc::ptr_eq(&waiter.request, request))
        {
            let _ = line.waiters.remove(at).answer.send(Err(error));
        }
    }

    /// Answers those whose wait has ended in vain.
    fn answer_ended(&self, kinds: &BTreeSet<Kind>, now: Instant) {
        let mut lines = self.lines();
        let Some(Line { waiters, failed, .. }) = lines.get_mut(kinds) else {
            return;
        };
        for Waiter { request, answer, .. } in waiters.extract_if(.., |waiter| waiter.until <= now) {
            let _ = answer.send(match failed {
                Some(error) => Err(error.once_more()),
                None => Ok(Offered::new(&request.claims.kernel, Vec::new())),
            });
        }
    }
}
