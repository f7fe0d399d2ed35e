//! Finds problems.

use std::fmt;
use std::time::Duration;

use delayline::Timestamp;
use delayline::backend::{RedisBackend, RedisCheckup};
use delayline::redis::Node;
use serde::Serialize;

use super::rows::Rows;

/// From how many members on a key counts as big: to copy one takes a server tens of ms, during which it does nothing
/// else.
const BIG: u64 = 1_000_000;
/// From which part on a server counts as full that refuses new data.
const FULL: f64 = 0.9;
/// By how much clocks may differ without a finding.
const CLOCKS: i64 = 1_000;
/// How long a task may normally stay after it is due, or after its lease has ended, while a worker works.
const OVERDUE_AFTER: Duration = Duration::from_secs(5);

/// Something that would lose or delay tasks, or is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    severity: Severity,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Problem,
    Note,
}

impl Finding {
    fn problem(text: String) -> Self {
        Self {
            severity: Severity::Problem,
            text,
        }
    }

    fn note(text: String) -> Self {
        Self {
            severity: Severity::Note,
            text,
        }
    }

    pub(super) fn is_problem(&self) -> bool {
        self.severity == Severity::Problem
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Problem => "problem",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {}", self.text)
    }
}

/// Returns all findings.
pub(super) fn findings(
    checkup: &RedisCheckup,
    rows: Option<&Rows>,
    clocks_ahead_ms: &[Option<i64>],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let has_rows = rows.is_some_and(|rows| rows.count() > 0);
    for (node, ahead) in checkup.nodes.iter().zip(clocks_ahead_ms) {
        of_node(node, has_rows, &mut findings);
        if let Some(ahead) = ahead.filter(|ahead| ahead.abs() > CLOCKS) {
            findings.push(Finding::note(format!(
                "{}: its clock is {ahead:+} ms to the database's; delays are not affected, as the two are never compared",
                node.address
            )));
        }
    }
    if has_rows {
        let clocks = checkup.nodes.iter();
        let clocks = clocks.filter_map(|node| Some((node.time?, node.address.as_str())));
        findings.extend(clocks_apart(clocks));
    }
    of_contents(checkup, &mut findings);
    if let Some(rows) = rows {
        of_rows(rows, &mut findings);
    }
    findings
}

fn of_node(node: &Node, has_rows: bool, findings: &mut Vec<Finding>) {
    let at = &node.address;
    let what = if has_rows { "tasks" } else { "wake-ups" };
    let mut problem = |text: String| findings.push(Finding::problem(format!("{at}: {text}")));
    if !node.is_master {
        problem(format!("it is a replica, and takes no {what}"));
    }
    if node.evicts() {
        problem(format!(
            "maxmemory-policy is {}, so it removes {what} when it is full; set noeviction",
            node.policy
        ));
    }
    if node.memory_limit > 0 && node.memory_used as f64 > FULL * node.memory_limit as f64 {
        problem(format!("its memory is nearly full; then it refuses new {what}"));
    }
    if !node.can_write {
        problem("it cannot write to its disk, and may refuse writes for that".to_owned());
    }
    let major: u32 = node
        .version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    if major < 6 {
        problem(format!(
            "Redis {} does not notify receivers of earlier wake-ups; they poll every 250 ms instead",
            node.version
        ));
    }
    let is_alone = !node.appends && !node.saves && node.replicas == 0;
    if is_alone && has_rows {
        findings.push(Finding::problem(format!(
            "{at}: it keeps nothing on disk and has no replica; after a restart all tasks are lost"
        )));
    } else if is_alone {
        findings.push(Finding::note(format!(
            "{at}: it keeps nothing on disk and has no replica; after a restart the tasks of a SQL store are found by the \
             sweep, each up to a second late, or all at once by `delayline redis rebuild`"
        )));
    }
}

/// A problem if the clocks of masters differ: leases of rows are renewed by the slowest one.
fn clocks_apart<'n>(clocks: impl Iterator<Item = (Timestamp, &'n str)> + Clone) -> Option<Finding> {
    let ((first, slow), (last, fast)) = (clocks.clone().min()?, clocks.max()?);
    let apart = last.millis_since(first);
    let text = || {
        format!(
            "{fast}: its clock is {apart} ms ahead of that of {slow}: so much do the times of tasks differ, and so much shorter are \
             leases that are renewed; they are lost from two thirds of a lease on"
        )
    };
    (apart > CLOCKS).then(|| Finding::problem(text()))
}

fn of_contents(checkup: &RedisCheckup, findings: &mut Vec<Finding>) {
    let limit = u64::try_from(RedisBackend::OVERDUE_AFTER.as_millis()).unwrap_or(u64::MAX);
    let held: u64 = checkup
        .contents
        .iter()
        .map(|shard| shard.held + shard.leased)
        .sum();
    if checkup.receivers == 0 && held > 0 {
        findings.push(Finding::problem(format!(
            "no process receives, so none of the {} shards is watched",
            checkup.contents.len()
        )));
    }
    for shard in &checkup.contents {
        let key = &shard.key;
        if shard.due_for_ms > limit {
            findings.push(Finding::problem(format!(
                "{key}: its first wake-up is due for {} ms, and no process has taken it",
                shard.due_for_ms
            )));
        }
        if shard.ended_for_ms > limit {
            findings.push(Finding::problem(format!(
                "{key}: {} wake-ups were taken by a process whose lease has ended, the first {} ms ago, and were not given \
                 to others",
                shard.ended, shard.ended_for_ms
            )));
        }
        if shard.foreign > 0 {
            findings.push(Finding::note(format!(
                "{key}: {} members were no wake-ups and are set aside beside it",
                shard.foreign
            )));
        }
        if shard.held > BIG {
            findings.push(Finding::note(format!(
                "{key}: {} members; with more shards each is smaller (`delayline redis rebuild --shards` under a new prefix)",
                shard.held
            )));
        }
    }
}

fn of_rows(rows: &Rows, findings: &mut Vec<Finding>) {
    let limit = u64::try_from(OVERDUE_AFTER.as_millis()).unwrap_or(u64::MAX);
    if rows.due_for_ms > limit {
        findings.push(Finding::problem(format!(
            "the first task is due for {} ms, and no worker has taken it",
            rows.due_for_ms
        )));
    }
    if rows.ended_for_ms > limit {
        findings.push(Finding::problem(format!(
            "a task is running whose lease has ended {} ms ago, and no worker has taken it over",
            rows.ended_for_ms
        )));
    }
    if rows.dead > 0 {
        findings.push(Finding::note(format!(
            "{} tasks are dead, until they are redriven",
            rows.dead
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_whose_clocks_differ_are_a_problem() {
        let apart = |clocks: &[(i64, &str)]| {
            let clocks = clocks.iter();
            let found =
                clocks_apart(clocks.map(|(millis, address)| (Timestamp::from_millis(*millis), *address)));
            found.map(|found| found.to_string())
        };
        assert_eq!(apart(&[]), None);
        assert_eq!(apart(&[(5_000, "a")]), None);
        assert_eq!(apart(&[(6_000, "a"), (5_000, "b"), (5_500, "c")]), None);
        let said = apart(&[(6_000, "a"), (26_000, "b"), (5_000, "c")]).unwrap();
        assert!(
            said.starts_with("problem: b: its clock is 21000 ms ahead of that of c"),
            "{said}"
        );
    }
}
