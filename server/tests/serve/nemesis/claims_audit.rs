//! Checks that claims, pauses and changes in bulk did what was answered.

use std::collections::{BTreeMap, BTreeSet};

use delayline::State;
use delayline::defaults::PAUSE_SEEN;
use delayline::history::Entry;

use super::http_callers::{Bulk, Called, Pause, reason};
use super::rows::{JOB, Row};

/// What is wrong, each with the history of its task.
pub(super) fn findings(called: &Called, jobs: &[Row], bulk: &[Row]) -> Vec<(String, String)> {
    let mut wrong = of_jobs(called, jobs);
    let mut of_jobs = Bulk {
        prefix: "c-".to_owned(),
        all_answered: true,
        ..Bulk::default()
    };
    for change in &called.bulks {
        if change.scheduled.is_some() {
            wrong.extend(of_bulk(change, bulk));
        } else {
            of_jobs.cancelled += change.cancelled;
            of_jobs.all_answered &= change.all_answered;
        }
    }
    let cancelled = jobs
        .iter()
        .filter(|row| row.task.state == State::Cancelled)
        .count();
    wrong.extend(counted(&of_jobs, cancelled));
    wrong
}

/// Each job was scheduled once, ended once, and by the claim that was answered so.
fn of_jobs(called: &Called, rows: &[Row]) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let (mut done, mut given) = (BTreeMap::<&str, Vec<u64>>::new(), BTreeSet::new());
    for claim in &called.claims {
        let (id, version) = claim.claim.rsplit_once('.').unwrap();
        if !given.insert(&claim.claim) {
            wrong.push((format!("{} was given twice", claim.claim), String::new()));
        }
        if claim.is_done == Some(true) {
            done.entry(id).or_default().push(version.parse().unwrap());
        }
    }
    let keys: BTreeSet<_> = rows.iter().filter_map(key).collect();
    for missing in called.jobs.iter().filter(|key| !keys.contains(key.as_str())) {
        wrong.push((format!("{missing} is lost"), String::new()));
    }
    let mut seen = BTreeSet::new();
    for row in rows {
        let key = key(row).unwrap();
        let mut found = |what: &str| wrong.push((format!("{key} {what}"), row.told()));
        if !seen.insert(key) {
            found("was scheduled twice");
        }
        let by_bulk = row.events("cancelled").count();
        let ended = (row.events("done").count(), by_bulk);
        let expected = match row.task.state {
            State::Done => (1, 0),
            State::Cancelled if key.starts_with("c-") => (0, 1),
            _ => {
                found("has not ended");
                continue;
            }
        };
        if ended != expected {
            found("has not ended once");
        }
        let of_it = done.remove(&*row.task.id.to_string()).unwrap_or_default();
        // The end is the version after that of the claim, and the last one.
        if of_it.len() > 1
            || of_it.iter().any(|version| version + 1 != row.task.version)
            || by_bulk > 0 && !of_it.is_empty()
        {
            found("has not ended by the claim that was answered so");
        }
        for pause in called.pauses.iter().filter(|pause| pause.kind == JOB) {
            // What the database was asked for before, and did later, is given back, and no caller gets it.
            let is_given = |entry: &&Entry| given.contains(&format!("{}.{}", row.task.id, entry.version));
            let mut claimed = row.events("claimed").filter(is_given);
            if claimed.any(|entry| is_within(pause, entry.at.as_millis())) {
                found("was claimed though its kind was paused");
            }
        }
    }
    wrong.extend(
        done.into_keys()
            .map(|id| (format!("{id} was done, and is not there"), String::new())),
    );
    wrong
}

pub(super) fn is_within(pause: &Pause, at: i64) -> bool {
    at > pause.answered + PAUSE_SEEN.as_millis() as i64 && at < pause.resumed
}

/// Each task was cancelled once and moved at most once, and as many as was answered.
fn of_bulk(change: &Bulk, rows: &[Row]) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let is_of_it = |row: &&Row| key(row).is_some_and(|key| key.starts_with(&change.prefix));
    let rows: Vec<_> = rows.iter().filter(is_of_it).collect();
    if Some(rows.len()) != change.scheduled {
        wrong.push((
            format!("{change:?}: {} tasks are there", rows.len()),
            String::new(),
        ));
    }
    let mut moved = 0;
    for row in &rows {
        let by = |verb: &str, event| {
            let reason = Some(reason(verb, &change.prefix));
            row.events(event).filter(|entry| entry.reason == reason).count()
        };
        let (shifts, cancels) = (by("shift", "moved"), by("cancel", "cancelled"));
        moved += shifts as u64;
        if row.task.state != State::Cancelled
            || cancels != 1
            || row.events("cancelled").count() != 1
            || shifts > 1
        {
            wrong.push((
                format!("{:?} was moved {shifts} times, and cancelled {cancels}", key(row)),
                row.told(),
            ));
        }
    }
    if change.shifted.is_some_and(|shifted| shifted != moved) {
        wrong.push((format!("{change:?}: {moved} were moved"), String::new()));
    }
    wrong.extend(counted(change, rows.len()));
    wrong
}

/// What was answered of how many were cancelled, and how many are.
fn counted(change: &Bulk, cancelled: usize) -> Option<(String, String)> {
    let cancelled = cancelled as u64;
    let is_so = match change.all_answered {
        true => change.cancelled == cancelled,
        false => change.cancelled <= cancelled,
    };
    (!is_so).then(|| (format!("{change:?}: {cancelled} are cancelled"), String::new()))
}

fn key(row: &Row) -> Option<&str> {
    row.task.key.as_ref().map(|key| key.as_str())
}
