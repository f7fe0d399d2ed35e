//! Records how claimants ended their claims, and checks that only ends with that answer count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delayline::claims::ClaimId;
use delayline::{State, Task, TaskId};

use crate::audit::Wrong;
use crate::home::LEASE;
use crate::now;
use crate::starts::{Start, append};

/// The variable that names the file to a process.
pub(crate) const ENDS: &str = "DELAYLINE_NEMESIS_ENDS";

/// A claimant's request about its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Retry,
    Snooze,
    Discard,
    /// None: it holds for another lease.
    Extend,
}

impl End {
    const ALL: [Self; 5] = [Self::Done, Self::Retry, Self::Snooze, Self::Discard, Self::Extend];
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) version: u64,
    pub(crate) end: End,
    /// In ms.
    pub(crate) asked: i64,
    /// When, and whether the claim held; none: it is not known whether it was done.
    pub(crate) answered: Option<(i64, bool)>,
}

/// A process's access to the file, in which each call is two lines.
#[derive(Clone)]
pub(crate) struct Notes {
    path: PathBuf,
    calls: Arc<AtomicU64>,
}

/// A call that is not answered yet.
pub(crate) struct Asking(String);

impl Notes {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            calls: Arc::default(),
        }
    }

    pub(crate) fn ask(&self, claim: ClaimId, end: End) -> Asking {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = format!("{}-{call}", process::id());
        let (id, version, at) = (claim.task_id(), claim.version(), now());
        append(&self.path, &format!("{call} asked {id} {version} {end:?} {at}")).unwrap();
        Asking(call)
    }

    pub(crate) fn answer(&self, Asking(call): Asking, held: bool) {
        let at = now();
        append(&self.path, &format!("{call} answered {at} {held}")).unwrap();
    }
}

/// Reads all calls, in the order in which they were made.
pub(crate) fn noted(path: &Path) -> BTreeMap<TaskId, Vec<Ended>> {
    let mut calls = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        match *line.split(' ').collect::<Vec<_>>() {
            [call, "asked", id, version, end, asked] => {
                let ended = Ended {
                    version: version.parse().unwrap(),
                    end: *End::ALL.iter().find(|one| format!("{one:?}") == end).unwrap(),
                    asked: asked.parse().unwrap(),
                    answered: None,
                };
                calls.insert(call.to_owned(), (id.parse().unwrap(), ended));
            }
            [call, "answered", at, held] => {
                let (_, ended) = calls.get_mut(call).unwrap();
                ended.answered = Some((at.parse().unwrap(), held.parse().unwrap()));
            }
            _ => panic!("no line of ends: {line}"),
        }
    }
    let mut noted = BTreeMap::<_, Vec<_>>::new();
    for (id, ended) in calls.into_values() {
        noted.entry(id).or_default().push(ended);
    }
    for ends in noted.values_mut() {
        ends.sort_by_key(|ended: &Ended| ended.asked);
    }
    noted
}

/// Checks how the claims of a task were ended, and its row.
pub(crate) fn wrong(ends: &[Ended], starts: &[Start], row: &Task) -> BTreeSet<Wrong> {
    let mut found = BTreeSet::new();
    // The call by which it may have ended as it is.
    let last = |end: End| {
        let mut ends = ends.iter();
        ends.any(|ended| {
            (ended.version + 1, ended.end) == (row.version, end)
                && ended.answered.is_none_or(|(_, held)| held)
        })
    };
    let is_right = match row.state {
        State::Done => last(End::Done),
        State::Dead => last(End::Discard),
        State::Scheduled | State::Running | State::Cancelled => true,
    };
    if !is_right {
        found.insert(Wrong::EndedByNoClaim);
    }
    let held = |ended: &Ended| matches!(ended.answered, Some((_, true)));
    for (at, ended) in ends.iter().enumerate().filter(|(_, ended)| held(ended)) {
        let (answered, _) = ended.answered.unwrap();
        if ended.end == End::Extend {
            // Until then no other claimant has it, unless it was ended.
            let until = ended.asked + i64::try_from(LEASE.as_millis()).unwrap();
            let ends_by = |by: i64| {
                let mut ends = ends.iter();
                ends.any(|other| {
                    (other.version, other.end != End::Extend) == (ended.version, true) && other.asked <= by
                })
            };
            let is_others = |start: &&Start| start.version > ended.version && start.at < until;
            let taken = starts.iter().filter(is_others).map(|start| start.at).max();
            if taken.is_some_and(|taken| !ends_by(taken)) {
                found.insert(Wrong::TwoOwners);
            }
            continue;
        }
        let has_ended = match ended.end {
            End::Done => (row.state, row.version) == (State::Done, ended.version + 1),
            End::Discard => (row.state, row.version) == (State::Dead, ended.version + 1),
            // Something else has ended it since.
            _ => row.version > ended.version + 1,
        };
        let mut after = ends[at + 1..].iter();
        let is_again = after.any(|other| {
            other.version == ended.version
                && held(other)
                && (other.end != End::Extend || other.asked > answered)
        });
        let mut starts = starts.iter();
        if !has_ended || is_again || starts.any(|start| start.version <= ended.version && start.at > answered)
        {
            found.insert(Wrong::NotItsEnd);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use delayline::store::MemoryStore;
    use delayline::{NewTask, Scheduler};

    use super::*;

    /// A row of a version and a state.
    async fn row(version: u64, state: State) -> Task {
        let scheduler = Scheduler::new(MemoryStore::new());
        let scheduled = scheduler.schedule(NewTask::new("a", &())).await.unwrap();
        let mut row = scheduled.task().clone();
        (row.version, row.state) = (version, state);
        row
    }

    fn start(version: u64, at: i64) -> Start {
        Start {
            version,
            attempt: 1,
            planned_at: 0,
            due_at: 0,
            at,
            process: 1,
            woken_by: String::new(),
        }
    }

    fn ended(version: u64, end: End, asked: i64, held: Option<bool>) -> Ended {
        Ended {
            version,
            end,
            asked,
            answered: held.map(|held| (asked + 10, held)),
        }
    }

    #[tokio::test]
    async fn what_is_done_was_ended_by_a_claim_that_held_or_had_no_answer() {
        let row = row(3, State::Done).await;
        let of = |ends: &[Ended]| wrong(ends, &[start(2, 0)], &row);
        for held in [Some(true), None] {
            assert_eq!(of(&[ended(2, End::Done, 5, held)]), [].into());
        }
        assert_eq!(of(&[]), [Wrong::EndedByNoClaim].into());
        assert_eq!(
            of(&[ended(2, End::Done, 5, Some(false))]),
            [Wrong::EndedByNoClaim].into()
        );
        assert_eq!(
            of(&[ended(2, End::Discard, 5, None)]),
            [Wrong::EndedByNoClaim].into()
        );
        // An earlier call had its effect.
        let again = [ended(2, End::Done, 5, None), ended(2, End::Done, 20, Some(false))];
        assert_eq!(of(&again), [].into());
    }

    #[tokio::test]
    async fn an_end_that_was_answered_is_the_only_one() {
        let row = row(5, State::Done).await;
        let starts = [start(2, 0), start(4, 2_000)];
        let last = ended(4, End::Done, 2_010, Some(true));
        let of = |first: Ended| wrong(&[first, last.clone()], &starts, &row);
        assert_eq!(of(ended(2, End::Retry, 5, Some(true))), [].into());
        assert_eq!(of(ended(2, End::Done, 5, Some(true))), [Wrong::NotItsEnd].into());
        assert_eq!(
            of(ended(4, End::Retry, 2_005, Some(true))),
            [Wrong::NotItsEnd].into()
        );
        assert_eq!(
            of(ended(2, End::Extend, 5, Some(true))),
            [Wrong::TwoOwners].into()
        );
        assert_eq!(of(ended(2, End::Extend, 5, None)), [].into());
    }
}
