//! `delayline redis doctor`: checks a Redis.

use std::fmt::Write as _;
use std::sync::Arc;

use delayline::Timestamp;
use delayline::backend::{RedisCheckup, ShardCheckup};
use delayline::redis::Node;
use delayline::store::Store;
use serde::Serialize;

use super::Place;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use super::Rows;
use super::findings::{Finding, findings};
use super::{refused, rows};
use crate::{Failure, in_runtime, print};

/// How many of the biggest keys are shown.
const BIGGEST: usize = 3;

/// Look for what would lose or delay tasks: the servers' settings, and what is kept in them.
///
/// The exit status is 0 if nothing would, notes or not; 1 if something would, or if the servers could not be asked; 2 if an
/// argument cannot be used.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    place: Place,
    /// Compare the clocks with that of the database, too: the one of --store, or of DATABASE_URL
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    #[arg(long)]
    clocks: bool,
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    #[command(flatten)]
    rows: Rows,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The report of a check.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    checkup: RedisCheckup,
    /// The rows that are kept there; none if none ever were.
    rows: Option<rows::Rows>,
    /// By how many ms the clock of each node is ahead of the database's; none if it was not asked, or does not say.
    clocks_ahead_ms: Vec<Option<i64>>,
    findings: Vec<Finding>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let address = self.place.address()?;
        let refused = |error| refused(&address, error);
        let backend = self.place.backend(&address).build().map_err(refused)?;
        let kept = self.place.store(&address)?;
        let (checkup, rows, clocks_ahead_ms) = in_runtime(async {
            let store = self.store().await?;
            let before = now(store.as_deref()).await?;
            let checkup = backend.checkup().await.map_err(refused)?;
            let after = now(store.as_deref()).await?;
            let rows = rows::Rows::of(&kept).await?;
            // Each node was asked at a moment between the two.
            let ahead = |node: &Node| {
                let middle = before?.as_millis().midpoint(after?.as_millis());
                Some(node.time?.as_millis() - middle)
            };
            let clocks: Vec<_> = checkup.nodes.iter().map(ahead).collect();
            Ok::<_, Failure>((checkup, rows, clocks))
        })??;
        let findings = findings(&checkup, rows.as_ref(), &clocks_ahead_ms);
        let report = Report {
            checkup,
            rows,
            clocks_ahead_ms,
            findings,
        };
        let text = if self.json {
            crate::json(&report)? + "\n"
        } else {
            report.text()
        };
        print(&text)?;
        let problems = report
            .findings
            .iter()
            .filter(|finding| finding.is_problem())
            .count();
        match problems {
            0 => Ok(()),
            1 => Err(Failure::Found("1 problem would lose or delay tasks".to_owned())),
            count => Err(Failure::Found(format!(
                "{count} problems would lose or delay tasks"
            ))),
        }
    }

    /// Returns the store whose clock is to be compared, if any is.
    async fn store(&self) -> Result<Option<Arc<dyn Store>>, Failure> {
        #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
        if self.clocks || self.rows.store.is_some() {
            return Ok(Some(self.rows.open().await?));
        }
        Ok(None)
    }
}

async fn now(store: Option<&dyn Store>) -> Result<Option<Timestamp>, Failure> {
    match store {
        Some(store) => Ok(Some(store.now().await?)),
        None => Ok(None),
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        for (node, ahead) in self.checkup.nodes.iter().zip(&self.clocks_ahead_ms) {
            let role = if node.is_master { "master" } else { "replica" };
            let limit = match node.memory_limit {
                0 => "no limit".to_owned(),
                limit => megabytes(limit),
            };
            let disk = match (node.appends, node.saves) {
                (true, _) => "appends to a file",
                (false, true) => "saves snapshots",
                (false, false) => "nothing on disk",
            };
            let _ = write!(
                text,
                "{}: Redis {}, {role}, {} replicas, {} of {limit}, {}, {disk}",
                node.address,
                node.version,
                node.replicas,
                megabytes(node.memory_used),
                node.policy,
            );
            if let Some(ahead) = ahead {
                let _ = write!(text, ", clock {ahead:+} ms to the database");
            }
            text.push('\n');
        }
        let RedisCheckup {
            shards,
            receivers,
            contents,
            ..
        } = &self.checkup;
        let sum = |count: fn(&ShardCheckup) -> u64| contents.iter().map(count).sum::<u64>();
        let _ = writeln!(
            text,
            "shards: {shards}; receivers: {receivers}; wake-ups: {} held, {} taken, {} set aside",
            sum(|shard| shard.held),
            sum(|shard| shard.leased),
            sum(|shard| shard.foreign),
        );
        let mut biggest: Vec<_> = contents.iter().filter(|shard| shard.held > 0).collect();
        biggest.sort_by_key(|shard| std::cmp::Reverse(shard.held));
        for shard in biggest.iter().take(BIGGEST) {
            let _ = writeln!(
                text,
                "{}: {} members, {}",
                shard.key,
                shard.held,
                megabytes(shard.bytes)
            );
        }
        if let Some(rows) = &self.rows {
            let _ = writeln!(
                text,
                "tasks: {} shards; {} scheduled, {} running, {} done, {} dead, {} cancelled",
                rows.shards, rows.scheduled, rows.running, rows.done, rows.dead, rows.cancelled,
            );
        }
        for finding in &self.findings {
            let _ = writeln!(text, "{finding}");
        }
        text
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
