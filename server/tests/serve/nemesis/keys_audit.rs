//! Checks that what messages of each key did is what they would have done one after the other, and that what came out is
//! what was to.
//!
//! A task may be published before a verb comes: so where a verb did nothing, something must say that it came too late, or
//! nothing that it did not.

use std::collections::{BTreeMap, BTreeSet};

use delayline::history::Entry;
use delayline::rocketmq::Received;
use delayline::{State, Timestamp};
use serde_json::Value;

use super::claims_audit::is_within;
use super::http_callers::Pause;
use super::producer::{KEYS, Seen, Sent, Verb, body, made_by, name_of};
use super::rows::{MESSAGE, Row};

/// All that is known of messages at the end.
pub(super) struct Audit<'a> {
    seen: &'a Seen,
    pauses: &'a [Pause],
    /// By the message that made each.
    rows: BTreeMap<usize, &'a Row>,
    /// What each message has done to tasks that others had made.
    effects: BTreeMap<usize, Vec<(usize, &'a Entry)>>,
    wrong: Vec<(usize, String)>,
}

/// The task of a key, where its messages have come to.
#[derive(Clone, Copy)]
struct Current {
    number: usize,
    /// Whether its message may have come again after another task of the key, of which it had been answered that it
    /// exists, was published: then it is scheduled though later messages may have come before.
    may_be_late: bool,
}

/// What a verb is for.
#[derive(Clone, Copy)]
struct Aim {
    target: Option<usize>,
    may_be_late: bool,
    /// Whether it may have been for another one when it came first.
    was_for_another: bool,
}

/// The id of the message that an entry was made by.
fn by_message(entry: &Entry) -> Option<&str> {
    let by_gateway = entry.actor.as_ref()?.starts_with("gateway:");
    let message = entry.reason.as_ref()?.strip_prefix("message ")?;
    by_gateway.then(|| message.split_once(',').map(|(id, _)| id))?
}

/// A time that has passed means now.
fn is_due(entry: &Entry, millis: i64) -> bool {
    let (due, at) = (entry.due_at.as_millis(), entry.at.as_millis());
    due == millis || (millis < due && due <= at)
}

impl<'a> Audit<'a> {
    pub(super) fn of(seen: &'a Seen, rows: &'a [Row], pauses: &'a [Pause]) -> Self {
        let ids: BTreeMap<_, _> = seen
            .stored
            .iter()
            .map(|(number, stored)| (&*stored.id, *number))
            .collect();
        let mut audit = Self {
            seen,
            pauses,
            rows: BTreeMap::new(),
            effects: BTreeMap::new(),
            wrong: Vec::new(),
        };
        for row in rows {
            let number = made_by(row);
            let mut last = seen.stored[&number].place;
            if audit.rows.insert(number, row).is_some() {
                audit.found(number, "made two tasks");
            }
            for (by, entry) in row
                .history
                .iter()
                .filter_map(|entry| Some((by_message(entry)?, entry)))
            {
                let by = ids[by];
                if seen.stored[&by].place <= last {
                    audit.found(by, "did something after what was sent later");
                }
                last = seen.stored[&by].place;
                audit.effects.entry(by).or_default().push((number, entry));
            }
        }
        audit
    }

    fn found(&mut self, number: usize, what: &str) {
        self.wrong.push((number, what.to_owned()));
    }

    /// What is wrong, each with the history of its key, the first of each key first.
    pub(super) fn findings(mut self) -> Vec<(String, String)> {
        for key in 0..KEYS {
            self.of_key(key);
        }
        for number in 0..self.seen.sent.len() {
            self.answers(number);
            self.outs(number);
        }
        let (mut keys, mut findings) = (BTreeSet::new(), Vec::new());
        for (number, what) in &self.wrong {
            let sent = self.seen.sent[*number];
            let history = if keys.insert(sent.key) {
                self.told(sent.key)
            } else {
                String::new()
            };
            findings.push((
                format!(
                    "message {number} of {}, {:?}, {what}",
                    name_of(sent.key),
                    sent.verb
                ),
                history,
            ));
        }
        findings.sort_by_key(|(_, history)| history.is_empty());
        findings
    }

    /// The messages of a key, as the broker stored them.
    fn log(&self, key: usize) -> Vec<(usize, Sent, &'a Received)> {
        let stored = self.seen.stored.iter();
        let of_all = stored.map(|(number, stored)| (*number, self.seen.sent[*number], stored));
        let mut log: Vec<_> = of_all.filter(|(_, sent, _)| sent.key == key).collect();
        log.sort_by_key(|(.., stored)| stored.place);
        log
    }

    fn of_key(&mut self, key: usize) {
        let mut current = None;
        let (mut late, mut earlier) = (BTreeSet::new(), Vec::new());
        for (number, sent, stored) in self.log(key) {
            let effects = self.effects.remove(&number).unwrap_or_default();
            if effects.len() > 1 {
                self.found(number, "was done twice");
            }
            let effect = effects.first().copied();
            if sent.verb.makes_a_task() {
                current = self.scheduled(number, sent, stored, effect, current, &earlier);
                earlier.extend(current.map(|current| current.number));
                late.extend(
                    current
                        .filter(|current| current.may_be_late)
                        .map(|current| current.number),
                );
                continue;
            }
            let target = sent.of.filter(|of| self.rows.contains_key(of));
            let target = if sent.of.is_some() {
                target
            } else {
                current.map(|current| current.number)
            };
            // It may have been for one that ran when it came first, as that is not remembered either.
            let mut others = earlier.iter().filter(|earlier| Some(**earlier) != target);
            let was_for_another = others.any(|other| {
                let row = self.rows[other];
                row.claimed_at().is_some() && row.ended_at() >= Some(stored.stored_at)
            });
            let may_be_late = target.is_some_and(|target| late.contains(&target));
            let aim = Aim {
                target,
                may_be_late,
                was_for_another,
            };
            self.changed(number, sent, stored, effect, aim);
        }
    }

    /// What a message that is to be scheduled has done; the task of its key from then on.
    fn scheduled(
        &mut self,
        number: usize,
        sent: Sent,
        stored: &Received,
        effect: Option<(usize, &Entry)>,
        current: Option<Current>,
        earlier: &[usize],
    ) -> Option<Current> {
        let (Verb::Schedule(after) | Verb::Replace(after)) = sent.verb else {
            return current;
        };
        let before = current.map(|current| self.rows[&current.number]);
        let Some(row) = self.rows.get(&number).copied() else {
            if effect.is_some() {
                self.found(number, "made room for itself, and is lost");
            }
            let was_cancelled = self
                .seen
                .answers(number)
                .iter()
                .any(|(_, said)| said["answer"] == "cancelled");
            let excused = earlier
                .iter()
                .any(|earlier| self.is_in_the_way(self.rows[earlier], sent, stored))
                || was_cancelled && self.is_cancelled_later(number, sent, stored);
            if !excused {
                self.found(number, "is lost");
            }
            return current;
        };
        if let Some((on, entry)) = effect
            && !(matches!(sent.verb, Verb::Replace(_))
                && entry.event == "cancelled"
                && current.is_some_and(|current| current.number == on))
        {
            self.found(number, "did something else than to take a place");
        }
        if before.is_some_and(|before| before.ended_at().is_none_or(|ended| ended > row.task.created_at)) {
            self.found(number, "was scheduled beside another one of its key");
        }
        let first = row.events("scheduled").next();
        if first.is_none_or(|first| !is_due(first, stored.stored_at.as_millis() + after)) {
            self.found(number, "was scheduled for another time");
        }
        let was_new = self
            .seen
            .answers(number)
            .first()
            .is_some_and(|(_, said)| said["answer"] == "new" || said["answer"] == "replaced");
        let may_be_late = !was_new
            && before.is_some_and(|before| {
                before.task.state == State::Done && before.ended_at() >= Some(stored.stored_at)
            });
        Some(Current { number, may_be_late })
    }

    /// Whether an earlier task of its key may have been in the way of a message that was to be scheduled, when it came first:
    /// nothing remembers that, and what came of those before it when all came again is another matter.
    fn is_in_the_way(&self, earlier: &Row, sent: Sent, stored: &Received) -> bool {
        let was_there = earlier.ended_at() >= Some(stored.stored_at);
        match earlier.task.state {
            State::Done => was_there,
            // That ran, and was cancelled by one that came again when it had been put off.
            State::Cancelled if earlier.claimed_at().is_some() => was_there,
            State::Cancelled if matches!(sent.verb, Verb::Replace(_)) => false,
            State::Cancelled => self.is_ended_after(earlier, stored),
            _ => true,
        }
    }

    /// Whether a cancel that was sent later is for a message, as one is that has overtaken it.
    fn is_cancelled_later(&self, number: usize, sent: Sent, stored: &Received) -> bool {
        let log = self.log(sent.key);
        let mut later = log.iter().filter(|(_, _, other)| other.place > stored.place);
        later
            .any(|(_, other, _)| matches!(other.verb, Verb::Cancel) && other.of.is_none_or(|of| of == number))
    }

    /// The row of the task that an answer names.
    fn answered(&self, said: &Value) -> Option<&'a Row> {
        let id = said["task"]["id"].as_str()?;
        let mut rows = self.rows.values().copied();
        rows.find(|row| row.task.id.to_string() == id)
    }

    /// Whether a task was cancelled by a message that came later.
    fn is_ended_after(&self, row: &Row, stored: &Received) -> bool {
        let ids = &self.seen.stored;
        let by = row.events("cancelled").next_back().and_then(by_message);
        let place = by.and_then(|by| ids.values().find(|stored| stored.id == by)?.place);
        place > stored.place
    }

    /// What a verb has done to its target, or had a reason not to.
    fn changed(
        &mut self,
        number: usize,
        sent: Sent,
        stored: &Received,
        effect: Option<(usize, &Entry)>,
        Aim {
            target,
            may_be_late,
            was_for_another,
        }: Aim,
    ) {
        let row = target.map(|target| self.rows[&target]);
        let was_late = |at: Timestamp| may_be_late && row.is_some_and(|row| at <= row.task.created_at);
        if let Some((on, entry)) = effect {
            let millis = stored.stored_at.as_millis();
            let is_it = match sent.verb {
                Verb::Cancel => entry.event == "cancelled",
                Verb::Run => entry.event == "run_now",
                Verb::Reschedule(after) => entry.event == "moved" && is_due(entry, millis + after),
                Verb::Shift(by) => {
                    let before = entry.due_before.map_or(0, Timestamp::as_millis);
                    entry.event == "moved" && is_due(entry, before + by)
                }
                Verb::Schedule(_) | Verb::Replace(_) => false,
            };
            if !is_it {
                self.found(number, "did something else");
            }
            if Some(on) != target && !was_late(entry.at) {
                self.found(number, "is for another task than it changed");
            }
            return;
        }
        let Some(row) = row else { return };
        let answers = self.seen.answers(number);
        let was_there = |said: &str| answers.iter().any(|(_, answer)| answer["answer"] == said);
        let in_time = match row.task.state {
            // What else is answered may be to a message that came again.
            State::Done => {
                let was_over = was_there("too_late") || was_there("finished");
                row.ended_at() > Some(stored.stored_at) && was_there("not_found") && !was_over
            }
            State::Cancelled => self.is_ended_after(row, stored) && row.claimed_at().is_none(),
            _ => true,
        };
        if in_time && !was_late(stored.stored_at) && (sent.of.is_some() || !was_for_another) {
            self.found(number, "was in time, and did nothing");
        }
        // Of the row that the answer names: a message that came again may have been for another one.
        let is_false = |(at, said): &(Timestamp, Value)| {
            let claimed_at = self.answered(said).and_then(Row::claimed_at);
            said["answer"] == "too_late" && claimed_at.is_none_or(|claimed| claimed > *at)
        };
        if sent.of.is_none() && answers.iter().any(is_false) {
            self.found(number, "was answered too_late when nothing had begun");
        }
    }

    /// Each answer is true.
    fn answers(&mut self, number: usize) {
        let row = self.rows.get(&number).copied();
        let Some(stored) = self.seen.stored.get(&number) else {
            return;
        };
        let is_done_by = |row: &Row| {
            row.history
                .iter()
                .any(|entry| by_message(entry) == Some(&*stored.id))
        };
        for (at, said) in self.seen.answers(number) {
            let of = self.answered(&said);
            let is_true = match said["answer"].as_str().unwrap() {
                "new" | "replaced" => row.is_some(),
                "cancelled" => row.is_none(),
                "done" => of.is_some_and(is_done_by),
                "finished" => of
                    .is_some_and(|of| said["task"]["state"] == format!("{:?}", of.task.state).to_lowercase()),
                // It may come again when there is something.
                "not_found" => !self
                    .rows
                    .values()
                    .any(|row| is_done_by(row) && row.task.created_at < at),
                "existing" | "running" | "too_late" | "conflict" => of.is_some(),
                _ => false,
            };
            if !is_true {
                self.found(number, &format!("was answered what is not so: {said}"));
            }
        }
    }

    /// What came out for a message is what was sent, in time, and only if it was to come out.
    fn outs(&mut self, number: usize) {
        let outs: Vec<_> = self.seen.outs(number).collect();
        let Some(row) = self.rows.get(&number).copied() else {
            if !outs.is_empty() {
                self.found(number, "came out, and there is no task of it");
            }
            return;
        };
        let cancelled_at = match row.task.state {
            State::Done if outs.is_empty() => return self.found(number, "is done, and has not come out"),
            State::Done => None,
            State::Cancelled => row.ended_at(),
            _ => return self.found(number, "has not ended"),
        };
        let key = name_of(self.seen.sent[number].key);
        for out in outs {
            let due: i64 = out.properties["DELAYLINE_DUE_AT"].parse().unwrap();
            let published = out.born_at.as_millis();
            let is_same = out.body.as_ref().is_ok_and(|came| *came == body(number))
                && out.tag() == Some("nemesis")
                && out.sharding_key() == Some(&key)
                && out.keys().eq([&*key])
                && out.properties["DELAYLINE_ID"] == row.task.id.to_string();
            if !is_same {
                self.found(number, "came out otherwise than it was sent");
            }
            if published < due {
                self.found(number, "came out early");
            }
            // A server that was killed may have published what could be cancelled when its lease had ended.
            if cancelled_at.is_some_and(|at| out.born_at > at) && row.task.stalls == 0 {
                self.found(number, "came out after it was cancelled");
            }
            let mut pauses = self.pauses.iter().filter(|pause| pause.kind == MESSAGE);
            if out.properties["DELAYLINE_ATTEMPT"] == "1"
                && pauses.any(|pause| is_within(pause, due) && is_within(pause, published))
            {
                self.found(number, "came out though its kind was paused");
            }
        }
    }

    /// All that is known of a key, as it happened.
    fn told(&self, key: usize) -> String {
        let mut told = format!("{}:", name_of(key));
        for (number, sent, stored) in self.log(key) {
            let of = sent.of.map_or_else(String::new, |of| format!(" of {of}"));
            told += &format!(
                "\n {number} {:?}{of} at {} {:?} {}",
                sent.verb, stored.stored_at, stored.place, stored.id
            );
            for (at, said) in self.seen.answers(number) {
                told += &format!("\n  answered at {at}: {} {}", said["answer"], said["task"]["id"]);
            }
            for out in self.seen.outs(number) {
                told += &format!(
                    "\n  came out at {}, due at {}",
                    out.born_at, out.properties["DELAYLINE_DUE_AT"]
                );
            }
            if let Some(row) = self.rows.get(&number) {
                told += "\n";
                told += &row.told();
            }
        }
        told
    }
}
