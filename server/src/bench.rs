//! `delayline bench`: how fast servers are with Delayline, beside the least work that they could do for the same.

#[cfg(feature = "rocketmq")]
mod chains;
mod compare;
mod crowd;
mod figure;
mod idle;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod known;
mod ledger;
mod machine;
#[cfg(feature = "redis")]
#[cfg(feature = "mysql")]
mod mysql;
mod named;
mod names;
mod ours;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod relay;
mod report;
mod servers;
mod side;
#[cfg(feature = "sqlite")]
mod sqlite;
mod wheel;
mod work;
mod workload;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use delayline::store::History;
use indicatif::{ProgressBar, ProgressStyle};

use self::crowd::Others;
use self::figure::Line;
use self::ledger::Faults;
use self::servers::Servers;
use self::workload::Workload;
use crate::interrupt::interrupted;
use crate::{Failure, json, print};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measure your servers: the library beside the least work that they could do for the same effect.
///
/// The limit and the library take turns on the same server, each with tables or keys of its own that are removed at the
/// end; nobody's tasks are touched. W1: tasks are scheduled. W2: 20,000 are due at once; W2L: ten times as many. W3: one is
/// due each ms. W4: bytes of Redis each. W5: what is asked while none is due. W6: tasks are cancelled and moved.
/// W7: timers in the process.
///
/// On RocketMQ: C1: 500 tasks a second go through chains of 1, 2 and 4 hops, and through 2 and then --redis. C2: tasks are
/// scheduled for 10 s until their wake-ups are on brokers. C3: 20,000 come out of one level at once. Topics and groups are
/// deleted; what C2 leaves in a level comes out of it within the hour, for a topic that is gone, and is kept as long as any
/// message. What happens when a broker is killed (C4) needs brokers that may be: cargo bench --bench outage.
///
/// The exit status is 0 if each task started once and not before its time, whatever was measured; 1 if not, or if
/// something could not be measured; 2 if an argument cannot be used.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// What to measure, such as W1; otherwise, or with all, whatever the servers allow
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<Wanted>,
    /// A store for tasks: postgres://, mysql://, redis:// or the path of a file for SQLite, beside which others are made;
    /// may be given more than once. Otherwise what the environment variable DATABASE_URL says
    #[arg(long, value_name = "URL")]
    store: Vec<String>,
    /// A Redis for wake-ups alone, without rows
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// RocketMQ's nameservers, several separated by semicolons, whose brokers take anybody's messages. The rows are in the
    /// first --store, or else in a file of SQLite for the while
    #[arg(long, value_name = "HOST:PORT", allow_hyphen_values = true)]
    rocketmq: Option<String>,
    /// How many tasks to take at the most, if fewer than usual
    #[arg(long, value_name = "N", value_parser = tasks, default_value = "1000000", hide_default_value = true, allow_hyphen_values = true)]
    tasks: usize,
    /// Measure W1, W2, W3 and W6 on each --store with so many other tasks pending in it, beside the library without them
    #[arg(long, value_name = "N", value_parser = others, default_value = "0", hide_default_value = true, allow_hyphen_values = true)]
    pending: usize,
    /// The same with so many other tasks that are finished and kept
    #[arg(long, value_name = "N", value_parser = others, default_value = "0", hide_default_value = true, allow_hyphen_values = true)]
    finished: usize,
    /// The same where it is noted what happens to each task, beside the library that notes nothing
    #[arg(long, value_name = "WHAT", value_parser = history, default_value = "off", hide_default_value = true)]
    history: History,
    /// How often to measure each; the median counts
    #[arg(long, value_name = "N", value_parser = runs, default_value = "3", allow_hyphen_values = true)]
    runs: usize,
    /// Print JSON, one line for each figure
    #[arg(long)]
    json: bool,
    /// Write a page for people, too, with how late tasks were and what the machine is
    #[arg(long, value_name = "FILE", value_parser = page)]
    report: Option<PathBuf>,
}

/// One workload, or all that the servers allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    One(Workload),
    All,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("all") {
            return Ok(Self::All);
        }
        let named = Workload::ALL
            .into_iter()
            .find(|workload| workload.name().eq_ignore_ascii_case(text));
        named.map(Self::One).ok_or_else(|| {
            format!(
                "allowed are {} and all",
                Workload::ALL.map(Workload::name).join(", ")
            )
        })
    }
}

/// Fewer than these would measure nothing.
const FEWEST: usize = 10;

fn tasks(text: &str) -> Result<usize, String> {
    let most = 1_000_000;
    let allowed = || format!("allowed are whole numbers from {FEWEST} to {most}");
    text.parse()
        .ok()
        .filter(|tasks| (FEWEST..=most).contains(tasks))
        .ok_or_else(allowed)
}

fn others(text: &str) -> Result<usize, &'static str> {
    text.parse()
        .ok()
        .filter(|others| *others <= 100_000_000)
        .ok_or("allowed are whole numbers from 0 to 100000000")
}

fn history(text: &str) -> Result<History, &'static str> {
    match text {
        "off" => Ok(History::Off),
        "changes" => Ok(History::Changes),
        "all" => Ok(History::All),
        _ => Err("allowed are off, changes and all"),
    }
}

fn runs(text: &str) -> Result<usize, &'static str> {
    text.parse()
        .ok()
        .filter(|runs| (1..=100).contains(runs))
        .ok_or("allowed are whole numbers from 1 to 100")
}

/// A file that can be written: else all would be measured in vain.
fn page(text: &str) -> Result<PathBuf, &'static str> {
    let file = PathBuf::from(text);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_there = folder.is_none_or(Path::is_dir) && !file.is_dir() && file.file_name().is_some();
    is_there
        .then_some(file)
        .ok_or("allowed is a file in a folder that is there")
}

/// How much of it is measured, and who is told how far it is.
struct Order {
    tasks: usize,
    runs: usize,
    bar: ProgressBar,
}

impl Order {
    /// What is measured now.
    fn tell(&self, server: &str, workload: Workload, side: &str, run: usize) {
        let Self { runs, bar, .. } = self;
        bar.set_message(format!("{server} {workload}: {side}, run {} of {runs}", run + 1));
    }
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let others = Others {
            pending: self.pending,
            finished: self.finished,
            history: self.history,
        };
        let servers = Servers::named(
            &self.store,
            self.redis.as_deref(),
            self.rocketmq.as_deref(),
            others,
        )?;
        let workloads = servers.choose(self.wanted())?;
        let order = Order {
            tasks: self.tasks,
            runs: self.runs,
            bar: bar(),
        };
        let lines = self.measured(&servers, &workloads, &order);
        order.bar.finish_and_clear();
        let lines = lines?;
        let text = match self.json {
            true => {
                let lines = lines.iter().map(|line| Ok(json(&line.json())? + "\n"));
                lines.collect::<Result<String, Failure>>()?
            }
            false => figure::text(&lines),
        };
        print(&text)?;
        if let Some(file) = &self.report {
            let versions = crate::in_runtime(servers.versions())?;
            report::write(file, &lines, &versions)
                .map_err(|error| Failure::Found(format!("--report could not be written: {error}")))?;
        }
        verdict(&lines)
    }

    /// What was named, each once; none: everything.
    fn wanted(&self) -> Option<Vec<Workload>> {
        let named = self.workloads.iter().map(|wanted| match wanted {
            Wanted::One(workload) => Some(*workload),
            Wanted::All => None,
        });
        let mut named: Vec<Workload> = named.collect::<Option<_>>()?;
        named.sort();
        named.dedup();
        (!named.is_empty()).then_some(named)
    }

    /// Measures in a runtime of its own, so that nothing of it works on when its tables are removed.
    fn measured(
        &self,
        servers: &Servers,
        workloads: &[Workload],
        order: &Order,
    ) -> Result<Vec<Line>, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::Runtime)?;
        let measured = runtime.block_on(async {
            let interrupted = interrupted()?;
            tokio::select! {
                measured = servers.measure(workloads, order) => measured,
                signal = interrupted => Err(signal),
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(5));
        let cleaned = crate::in_runtime(servers.clean())?;
        measured.and_then(|lines| cleaned.map(|()| lines))
    }
}

/// Is not seen where standard error is no terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Whether each task did what it should.
fn verdict(lines: &[Line]) -> Result<(), Failure> {
    let faults = lines
        .iter()
        .fold(Faults::default(), |sum, line| sum.and(line.ours.faults));
    let Faults { lost, twice, early } = faults;
    match faults.sum() {
        0 => Ok(()),
        _ => Err(Failure::Found(format!(
            "{lost} tasks were lost, {twice} started twice, {early} started early"
        ))),
    }
}
