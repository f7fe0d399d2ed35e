//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;

/// Opens orders that cancel themselves unless they are paid in time, and waits until every order has ended.
///
/// Exit status: 0 if no order was lost, ended twice or was cancelled early, else 1; 2 if an argument cannot be used.
#[derive(Debug, Parser)]
#[command(name = "order_auto_cancel")]
pub(crate) struct Options {
    /// How many orders to open; 0 only finishes what an earlier run has left in --db.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) orders: u32,

    /// The time to pay, such as 12s or 1m; or a range such as 300ms..40s, spread evenly over the orders.
    #[arg(long, value_name = "D", default_value = "12s")]
    pub(crate) delay: Delay,

    /// Every K-th order is paid in time; 0: none is.
    #[arg(long, value_name = "K", default_value_t = 4)]
    pub(crate) pay_every: u32,

    /// The database file, made if it is not there; otherwise one in a temporary folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,

    /// End with a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// What is due sooner than this goes to the precise backend.
    #[arg(long, value_name = "D", default_value = "1s", value_parser = duration)]
    pub(crate) handoff: Duration,

    /// By how much a level may overshoot the due time; with 0s every chain ends in the precise backend.
    #[arg(long, value_name = "D", default_value = "200ms", value_parser = duration)]
    pub(crate) tolerance: Duration,

    /// Chain delays through the levels of this RocketMQ (its nameserver) instead of in this process.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) rocketmq: Option<String>,

    /// Send the last stretch through this Redis instead of the table.
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
}

impl Options {
    /// The arguments; or, after one line about what is wrong with them, the status to exit with.
    pub(crate) fn from_args() -> Result<Self, ExitCode> {
        let options = Self::try_parse().map_err(|error| {
            if !error.use_stderr() {
                // The help.
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            let text = error.to_string();
            let first: Vec<_> = text
                .lines()
                .take_while(|line| !line.is_empty())
                .map(str::trim)
                .collect();
            refused(first.join(" ").trim_start_matches("error: "))
        })?;
        if options.rocketmq.is_some() && !cfg!(feature = "rocketmq") {
            return Err(refused(
                "--rocketmq needs the feature rocketmq: cargo run --features rocketmq ...",
            ));
        }
        if options.redis.is_some() && !cfg!(feature = "redis") {
            return Err(refused(
                "--redis needs the feature redis: cargo run --features redis ...",
            ));
        }
        Ok(options)
    }
}

fn refused(why: &str) -> ExitCode {
    eprintln!("order_auto_cancel: {why}");
    ExitCode::from(2)
}

/// One delay for all orders, or a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    from: Duration,
    to: Duration,
}

impl Delay {
    /// That of order `number` (from 1) of `count`, in whole milliseconds.
    pub(crate) fn of(self, number: u32, count: u32) -> Duration {
        let steps = u128::from(count.saturating_sub(1).max(1));
        let further = (self.to - self.from).as_millis() * u128::from(number - 1) / steps;
        self.from + Duration::from_millis(u64::try_from(further).unwrap_or(u64::MAX))
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let (from, to) = (duration(from)?, duration(to)?);
        if from > to {
            return Err("a range begins with the shorter delay".to_owned());
        }
        Ok(Self { from, to })
    }
}

/// A duration such as `250ms`, `12s` or `1h 30m`.
fn duration(text: &str) -> Result<Duration, String> {
    // humantime 2.4 overflows on numbers near 2^64.
    if text.len() > 18 {
        return Err("too long".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}
