//! `delayline bench`: measures how fast servers are with Delayline, beside the least work for the same effect.

#[cfg(feature = "rocketmq")]
mod chains;
mod figure;
mod ledger;
#[cfg(feature = "mysql")]
mod mysql;
mod ours;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod side;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod work;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;

use self::figure::Line;
use self::ledger::Faults;
use self::ours::Ours;
use self::side::{Place, Side};
use self::workload::Workload;
use crate::database::Address;
use crate::interrupt::interrupted;
use crate::whole::whole;
use crate::{Failure, json_lines, print, show};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measure your servers: the library beside the least work that they could do for the same effect.
///
/// The limit and the library take turns on the same server, each with tables or keys of its own that are removed at the
/// end; no other task is touched. W1: 100,000 tasks are scheduled. W2: 20,000 are due at once, and claimed and done.
/// W3: 20,000 are due, one each ms: how late they start. W6: of 100,000 tasks half are cancelled, half moved.
///
/// With --nameserver, C1: 1,000 tasks that are due --after a while go through a chain of hops, 500 a second, with their rows
/// in the first --store: how late they start, beside as many messages that come out of the chain's first level and have
/// no rows. The topic and the group are deleted.
///
/// The exit status is 0 if each task started once and not before its time, whatever was measured; 1 if not, or if
/// something could not be measured; 2 if an argument cannot be used.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// What to measure; otherwise whatever the servers allow
    #[arg(value_name = "WORKLOAD", value_enum, ignore_case = true)]
    workloads: Vec<Workload>,
    /// A store for tasks: postgres://, mysql://, redis:// or the path of a file for SQLite, beside which others are made;
    /// may be given more than once. Otherwise what the environment variable DATABASE_URL says
    #[arg(long, value_name = "URL")]
    store: Vec<String>,
    /// RocketMQ's nameservers, several separated by semicolons, whose brokers take messages without an account
    #[arg(long, value_name = "HOST:PORT", allow_hyphen_values = true)]
    nameserver: Option<String>,
    /// How far away tasks are due that go through a chain, such as 15m
    #[cfg(feature = "rocketmq")]
    #[arg(long, value_name = "DELAY", default_value = "15s", allow_hyphen_values = true)]
    after: crate::span::Span,
    /// How many tasks to take at the most, if fewer than usual
    #[arg(long, value_name = "N", value_parser = whole(10..=100_000_usize), default_value = "100000", hide_default_value = true, allow_hyphen_values = true)]
    tasks: usize,
    /// How often to measure each; the median counts
    #[arg(long, value_name = "N", value_parser = whole(1..=100_usize), default_value = "3", allow_hyphen_values = true)]
    runs: usize,
    /// Print JSON, one line for each figure
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        self.workloads.sort_unstable();
        self.workloads.dedup();
        if self.workloads.contains(&Workload::C1) && self.nameserver.is_none() {
            let refused = "WORKLOAD is \"C1\": it is allowed with --nameserver HOST:PORT";
            return Err(Failure::Argument(refused.to_owned()));
        }
        if cfg!(not(feature = "rocketmq")) && self.nameserver.is_some() {
            let refused =
                "--nameserver is given, but needs the feature rocketmq, which this build does not have";
            return Err(Failure::Argument(refused.to_owned()));
        }
        let lines = self.measured(&self.places()?)?;
        match self.json {
            true => {
                let values: Vec<_> = lines.iter().map(Line::json).collect();
                print(&json_lines(&values)?)?;
            }
            false => show(&figure::text(&lines))?,
        }
        verdict(&lines)
    }

    /// Returns the named stores; connects to nothing.
    fn places(&self) -> Result<Vec<Box<dyn Place>>, Failure> {
        let named = match self.store.as_slice() {
            [] => vec![Address::given(side::STORE, None)?],
            stores => stores
                .iter()
                .map(|store| Address::given(side::STORE, Some(store)))
                .collect::<Result<_, _>>()?,
        };
        named.iter().map(side::place).collect()
    }

    fn wants(&self, workload: Workload) -> bool {
        self.workloads.is_empty() || self.workloads.contains(&workload)
    }

    /// Measures in a runtime of its own, so that nothing of it works on when its tables are removed.
    fn measured(&self, places: &[Box<dyn Place>]) -> Result<Vec<Line>, Failure> {
        let run = Run::new(self);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::Runtime)?;
        #[cfg(feature = "rocketmq")]
        let mut brokers = None;
        let measured = runtime.block_on(async {
            let interrupted = interrupted()?;
            // Not abandoned once it has begun, as what it makes would stay.
            #[cfg(feature = "rocketmq")]
            if let Some(nameservers) = self.nameserver.as_ref().filter(|_| self.wants(Workload::C1)) {
                brokers = Some(chains::Brokers::make(nameservers).await?);
            }
            let measuring = async {
                let mut lines = Vec::new();
                for place in places {
                    for workload in Workload::ON_STORES {
                        if self.wants(workload) {
                            let measured = run.both(&**place, workload).await;
                            lines.extend(measured.map_err(|error| failed(place.name(), workload, &error))?);
                        }
                    }
                }
                #[cfg(feature = "rocketmq")]
                if let Some(brokers) = &brokers {
                    let measured = brokers.measure(self.after.0, &*places[0], &run).await;
                    lines.extend(measured.map_err(|error| failed("rocketmq", Workload::C1, &error))?);
                }
                Ok(lines)
            };
            tokio::select! {
                lines = measuring => lines,
                signal = interrupted => Err(signal),
            }
        });
        run.bar.finish_and_clear();
        runtime.shutdown_timeout(Duration::from_secs(5));
        let cleaned = crate::in_runtime(async {
            let mut cleaned = Ok(());
            for place in places {
                cleaned = cleaned.and(place.clean(&run.prefix).await);
            }
            #[cfg(feature = "rocketmq")]
            if let Some(brokers) = brokers {
                cleaned = cleaned.and(brokers.delete().await);
            }
            cleaned
        })?;
        let lines = measured?;
        cleaned.map_err(|error| Failure::Found(format!("what was made may be there still: {error}")))?;
        Ok(lines)
    }
}

/// How much is measured, and the prefix of all names.
struct Run {
    tasks: usize,
    runs: usize,
    prefix: String,
    bar: ProgressBar,
}

impl Run {
    fn new(bench: &Bench) -> Self {
        // Not shown where standard error is no terminal.
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            tasks: bench.tasks,
            runs: bench.runs,
            prefix: format!("delayline_bench_{:012x}", fastrand::u64(..1 << 48)),
            bar,
        }
    }

    /// Makes a unique name.
    fn name(&self) -> String {
        format!("{}_{:08x}", self.prefix, fastrand::u32(..))
    }

    /// Measures both sides in turns, each on tables or keys of its own.
    async fn both(&self, place: &dyn Place, workload: Workload) -> Result<Vec<Line>, Error> {
        let tasks = workload.tasks().min(self.tasks);
        let bare = async || place.bare(&self.name()).await;
        let library = async || Ok(Ours::over(place.store(&self.name()).await?)? as Arc<dyn Side>);
        let (mut limits, mut ours) = (Vec::new(), Vec::new());
        for run in 1..=self.runs {
            self.bar
                .set_message(format!("{} {workload}: the limit, run {run}", place.name()));
            let limit = work::measure(workload, tasks, &bare).await?;
            if limit.iter().any(|figure| figure.faults != Faults::default()) {
                return Err("the bare statements did not do it".into());
            }
            limits.push(limit);
            place.clean(&self.prefix).await?;
            self.bar
                .set_message(format!("{} {workload}: delayline, run {run}", place.name()));
            ours.push(work::measure(workload, tasks, &library).await?);
            place.clean(&self.prefix).await?;
        }
        Ok(figure::lines(workload, place.name(), &limits, &ours))
    }
}

fn failed(server: &str, workload: Workload, error: &Error) -> Failure {
    Failure::Found(format!("{workload} on {server} could not be measured: {error}"))
}

/// Fails if a task was lost, started twice or early.
fn verdict(lines: &[Line]) -> Result<(), Failure> {
    let faults = lines.iter().map(|line| line.ours.faults);
    match faults.fold(Faults::default(), Faults::and) {
        Faults {
            lost: 0,
            twice: 0,
            early: 0,
        } => Ok(()),
        Faults { lost, twice, early } => Err(Failure::Found(format!(
            "{lost} tasks were lost, {twice} started twice, {early} started early"
        ))),
    }
}
