//! Checks that the answers to callers match what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use delayline::{State, Task, TaskId};

use crate::ends::{self, Ended};
use crate::home::{CLAIMED, EFFECT, PLAIN, PLAIN_ATTEMPTS};
use crate::ledger::{Asked, Call, What};
use crate::pauses::Held;
use crate::starts::Start;
use crate::verbs::{Changed, Said};
use crate::world::Stop;

/// All that is known at the end.
pub(crate) struct Audit {
    pub(crate) asked: Vec<Asked>,
    pub(crate) starts: BTreeMap<TaskId, Vec<Start>>,
    /// How claimants ended what they had started.
    pub(crate) ends: BTreeMap<TaskId, Vec<Ended>>,
    pub(crate) rows: BTreeMap<TaskId, Task>,
    /// When nothing of a kind may have started.
    pub(crate) held: Vec<Held>,
    /// When workers were stopped.
    pub(crate) stops: Vec<Stop>,
    pub(crate) effects: Vec<String>,
    /// Whether effects are in transactions.
    pub(crate) has_transactions: bool,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    /// Its caller was told that it is there, and it is not, or it has ended without having run.
    Lost,
    /// It waits or runs though there was time to end it.
    NotEnded,
    /// It is dead though it had attempts left.
    Dead,
    /// It is cancelled and no caller has asked for it.
    CancelledUnasked,
    /// It was started before it was due.
    Early,
    /// It was started though its caller had been told that it was cancelled.
    StartedAfterCancel,
    /// It was started for what it was before, though its caller had been told that it was changed.
    StartedAfterChange,
    /// It was started though its kind was paused.
    StartedWhilePaused,
    /// It was started twice by the same claim.
    StartedTwice,
    /// It was started, or is there, though its transaction was rolled back.
    RolledBack,
    /// It has ended otherwise than by a claim that held, as far as claimants were told.
    EndedByNoClaim,
    /// A claimant was told that it had ended its claim, and it has not, or not alone.
    NotItsEnd,
    /// It was started while another claimant's claim was extended.
    TwoOwners,
    /// Its effect and its row do not agree.
    Effect,
    /// The row and what was written in the same transaction do not agree.
    HalfCommitted,
    /// No caller has asked for it.
    Unasked,
}

/// How many starts may be in progress in a process when it is stopped.
const MOST_ON_THE_WAY: usize = 4;
/// How soon after it continues these are recorded, in ms.
const GOES_ON_WITHIN: i64 = 500;

/// What is wrong, and with which task.
pub(crate) type Findings = Vec<(Wrong, TaskId)>;

impl Audit {
    pub(crate) fn findings(&self) -> Findings {
        let mut effects = BTreeMap::<&str, usize>::new();
        for effect in &self.effects {
            *effects.entry(effect).or_default() += 1;
        }
        let mut findings = Vec::new();
        for asked in &self.asked {
            for (at, &id) in asked.ids.iter().enumerate() {
                let mut found = |wrong| findings.push((wrong, id));
                let row = self.rows.get(&id);
                let one = One {
                    id,
                    is_first: at == 0,
                    asked,
                    starts: self.starts.get(&id).map_or(&[][..], Vec::as_slice),
                    row,
                };
                one.end().into_iter().for_each(&mut found);
                one.starts().into_iter().for_each(&mut found);
                if let (CLAIMED, Some(row)) = (asked.kind, row) {
                    let ends = self.ends.get(&id).map_or(&[][..], Vec::as_slice);
                    ends::wrong(ends, one.starts, row)
                        .into_iter()
                        .for_each(&mut found);
                }
                if !self.has_transactions {
                    continue;
                }
                let count = |name: &str| effects.get(name).copied().unwrap_or(0);
                let is_done = row.is_some_and(|row| row.state == State::Done);
                if count(&id.to_string()) != usize::from(is_done && asked.kind == EFFECT) {
                    found(Wrong::Effect);
                }
                if let Some(effect) = &asked.effect
                    && at == 0
                    && count(effect) != usize::from(row.is_some())
                {
                    found(Wrong::HalfCommitted);
                }
            }
        }
        findings.extend(self.started_while_paused());
        let known: BTreeSet<_> = self.asked.iter().flat_map(|asked| &asked.ids).collect();
        let all: BTreeSet<_> = self.starts.keys().chain(self.rows.keys()).collect();
        findings.extend(all.difference(&known).map(|id| (Wrong::Unasked, **id)));
        findings
    }

    /// Finds tasks that were started in a pause of their kind.
    fn started_while_paused(&self) -> Findings {
        let mut on_the_way = vec![0; self.stops.len()];
        let mut findings = Vec::new();
        for asked in &self.asked {
            for id in &asked.ids {
                for start in self.starts.get(id).into_iter().flatten() {
                    let mut held = self.held.iter();
                    let Some(held) = held.find(|held| held.forbids(asked.kind, start.at)) else {
                        continue;
                    };
                    // It had checked for pauses, and was stopped before it recorded the start.
                    let stop = self.stops.iter().position(|stop| {
                        stop.process == start.process
                            && stop.from < held.from
                            && (stop.until..stop.until + GOES_ON_WITHIN).contains(&start.at)
                    });
                    if let Some(stop) = stop
                        && on_the_way[stop] < MOST_ON_THE_WAY
                    {
                        on_the_way[stop] += 1;
                        continue;
                    }
                    findings.push((Wrong::StartedWhilePaused, *id));
                }
            }
        }
        findings
    }

    /// Prints all that is known of a task.
    pub(crate) fn history(&self, id: TaskId) -> String {
        let mut told = vec![format!("{id}:")];
        let mut lines = Vec::new();
        if let Some(asked) = self.asked.iter().find(|asked| asked.ids.contains(&id)) {
            told.push(format!(
                "  kind {}, of {:?}, effect {:?}",
                asked.kind, asked.ids, asked.effect
            ));
            lines.extend(
                asked
                    .calls
                    .iter()
                    .map(|call| (call.asked, format!("asked {call:?}"))),
            );
            let held = self.held.iter().filter(|held| held.kind == asked.kind);
            lines.extend(held.map(|held| (held.answered, format!("paused {held:?}"))));
        }
        let starts = self.starts.get(&id).into_iter().flatten();
        lines.extend(starts.map(|start| (start.at, format!("started {start:?}"))));
        let ends = self.ends.get(&id).into_iter().flatten();
        lines.extend(ends.map(|ended| (ended.asked, format!("ended {ended:?}"))));
        lines.sort();
        told.extend(lines.into_iter().map(|(at, line)| format!("  {at} {line}")));
        told.push(format!("  ends as {:?}", self.rows.get(&id)));
        told.join("\n")
    }
}

/// One task, and all calls of its caller.
struct One<'a> {
    id: TaskId,
    is_first: bool,
    asked: &'a Asked,
    starts: &'a [Start],
    row: Option<&'a Task>,
}

impl One<'_> {
    /// Returns the answers that say what it is now.
    fn changes(&self) -> impl Iterator<Item = (&Call, &Changed)> {
        self.asked.calls.iter().filter_map(|call| match &call.said {
            Said::Changed(changed) if changed.id == self.id => Some((call, changed)),
            _ => None,
        })
    }

    /// Checks how it ended.
    fn end(&self) -> Option<Wrong> {
        let calls = &self.asked.calls;
        let is_there = self.changes().next().is_some();
        let Some(row) = self.row else {
            return (is_there || !self.starts.is_empty()).then_some(Wrong::Lost);
        };
        if self.is_first && calls[0].said == Said::RolledBack {
            return Some(Wrong::RolledBack);
        }
        // The first call has scheduled it, and no history is removed meanwhile.
        let is_known = self.is_first && matches!(calls[0].said, Said::Changed(_));
        if is_known && calls.iter().any(|call| call.said == Said::NotFound) {
            return Some(Wrong::Lost);
        }
        match row.state {
            State::Scheduled | State::Running => Some(Wrong::NotEnded),
            State::Done => self.starts.is_empty().then_some(Wrong::Lost),
            State::Dead => {
                // A recorded start may not have happened where the answer was lost, and the claim with it.
                let attempts = u32::try_from(self.starts.len()).unwrap() + row.stalls;
                let is_too_soon = match self.asked.kind {
                    PLAIN => attempts < PLAIN_ATTEMPTS,
                    // The calls of its claimants are checked instead.
                    CLAIMED => false,
                    _ => true,
                };
                is_too_soon.then_some(Wrong::Dead)
            }
            State::Cancelled => {
                let may_be = |call: &Call| match &call.said {
                    Said::Changed(changed) => changed.id == self.id,
                    Said::Unknown(_) => true,
                    _ => false,
                };
                let mut cancels = calls.iter().filter(|call| call.what == What::Cancel);
                (!cancels.any(may_be)).then_some(Wrong::CancelledUnasked)
            }
        }
    }

    /// Checks when it was started.
    fn starts(&self) -> BTreeSet<Wrong> {
        let mut found = BTreeSet::new();
        let claims: BTreeSet<_> = self.starts.iter().map(|start| start.version).collect();
        if claims.len() < self.starts.len() {
            found.insert(Wrong::StartedTwice);
        }
        for start in self.starts {
            if start.at < start.due_at {
                found.insert(Wrong::Early);
            }
            for (call, changed) in self.changes().filter(|(call, _)| call.answered < start.at) {
                if call.what == What::Cancel {
                    found.insert(Wrong::StartedAfterCancel);
                } else if start.version <= changed.version {
                    found.insert(Wrong::StartedAfterChange);
                }
            }
            if !self.is_planned(start) {
                found.insert(Wrong::StartedAfterChange);
            }
        }
        found
    }

    /// Says whether it was started for a time that it may have had.
    fn is_planned(&self, start: &Start) -> bool {
        let before = || self.asked.calls.iter().filter(|call| call.asked <= start.at);
        // It may be done at any time after the call.
        if before().any(|call| matches!(call.said, Said::Unknown(_))) {
            return true;
        }
        // A caller's calls go one after the other. Versions would not do, as an answer by a lost try shows none.
        let mut last = None;
        for (call, changed) in self.changes().filter(|(call, _)| call.asked <= start.at) {
            if call.answered < start.at {
                last = Some(changed.planned_at);
            } else if changed.planned_at == start.planned_at {
                // At the same time: before or after it.
                return true;
            }
        }
        last.is_none_or(|planned_at| planned_at == start.planned_at)
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = || self.asked.iter().flat_map(|asked| &asked.calls);
        let unknown = counts(calls().filter_map(|call| match &call.said {
            Said::Unknown(why) => Some(why.chars().take(120).collect()),
            _ => None,
        }));
        let states = counts(self.rows.values().map(|row| format!("{:?}", row.state)));
        let starts = || self.starts.values().flatten();
        let woken_by = counts(starts().map(|start| start.woken_by.clone()));
        let mut late: Vec<_> = starts().map(|start| start.at - start.due_at).collect();
        late.sort_unstable();
        let late = [50, 99, 100].map(|percent| {
            let at = (late.len() * percent).div_ceil(100).saturating_sub(1);
            late.get(at).copied().unwrap_or(0)
        });
        let mut each_minute = BTreeMap::<i64, [usize; 2]>::new();
        let first = calls().map(|call| call.asked).min().unwrap_or(0);
        for call in calls() {
            let [answered, all] = each_minute.entry((call.asked - first) / 60_000).or_default();
            *answered += usize::from(!matches!(call.said, Said::Unknown(_)));
            *all += 1;
        }
        let percent = |[answered, all]: &[usize; 2]| answered * 100 / all;
        let each_minute: Vec<_> = each_minute.values().map(percent).collect();
        let paused: i64 = self.held.iter().map(|held| held.until - held.from).sum();
        let repeated = starts().count() - self.starts.len();
        write!(
            f,
            "{} callers made {} calls; rows {states:?}; {} starts, {repeated} of them again, woken by {woken_by:?}, late \
             p50 {} ms, p99 {} ms, max {} ms; {} effects; nothing may have started in {} pauses of {} s in all; \
             answered, in percent, minute by minute: {each_minute:?}; not answered {unknown:#?}",
            self.asked.len(),
            calls().count(),
            starts().count(),
            late[0],
            late[1],
            late[2],
            self.effects.len(),
            self.held.len(),
            paused / 1_000,
        )
    }
}

/// Counts equal values.
fn counts(of: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    of.fold(BTreeMap::new(), |mut counts, one| {
        *counts.entry(one).or_default() += 1;
        counts
    })
}
