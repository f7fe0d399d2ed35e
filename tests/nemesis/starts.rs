//! Records starts in a file that outlives every process.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process;

use delayline::{Task, TaskId};

use crate::now;

/// A start of a handler, or by a claimant.
#[derive(Clone, Debug)]
#[allow(dead_code)] // Some of it is only shown.
pub(crate) struct Start {
    pub(crate) version: u64,
    pub(crate) attempt: u32,
    /// In ms, as is all time here.
    pub(crate) planned_at: i64,
    pub(crate) due_at: i64,
    pub(crate) at: i64,
    pub(crate) process: u32,
    pub(crate) woken_by: String,
}

/// Records that this process starts a task.
pub(crate) fn note(starts: &Path, task: &Task, woken_by: impl Display) -> std::io::Result<()> {
    let at = now();
    let line = format!(
        "{} {} {} {} {} {at} {} {woken_by}",
        task.id,
        task.version,
        task.attempt,
        task.planned_at.as_millis(),
        task.due_at.as_millis(),
        process::id(),
    );
    append(starts, &line)
}

/// Adds a line to a file in one piece, whatever other process writes to it.
pub(crate) fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Reads all starts, in order.
pub(crate) fn noted(starts: &Path) -> BTreeMap<TaskId, Vec<Start>> {
    let mut noted = BTreeMap::<_, Vec<_>>::new();
    for line in fs::read_to_string(starts).unwrap().lines() {
        let [id, version, attempt, planned_at, due_at, at, process, woken_by] =
            *line.split(' ').collect::<Vec<_>>()
        else {
            panic!("no line of starts: {line}");
        };
        let start = Start {
            version: version.parse().unwrap(),
            attempt: attempt.parse().unwrap(),
            planned_at: planned_at.parse().unwrap(),
            due_at: due_at.parse().unwrap(),
            at: at.parse().unwrap(),
            process: process.parse().unwrap(),
            woken_by: woken_by.to_owned(),
        };
        noted.entry(id.parse().unwrap()).or_default().push(start);
    }
    for starts in noted.values_mut() {
        starts.sort_by_key(|start| start.at);
    }
    noted
}
