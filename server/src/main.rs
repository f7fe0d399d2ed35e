//! The command-line tool. Each command has a file beside this one.

// For the types of RocketMQ's client.
#![cfg_attr(feature = "rocketmq", recursion_limit = "512")]

mod arguments;
#[cfg(feature = "_store")]
mod bench;
#[cfg(feature = "_store")]
mod cause;
#[cfg(feature = "_store")]
mod client;
mod color;
#[cfg(feature = "_store")]
mod database;
#[cfg(feature = "_store")]
mod depth;
#[cfg(feature = "_store")]
mod digits;
mod examples;
#[cfg(any(feature = "redis", feature = "rocketmq"))]
mod field;
#[cfg(feature = "_store")]
mod forecast;
#[cfg(feature = "_store")]
mod input;
#[cfg(feature = "_servers")]
mod interrupt;
#[cfg(feature = "_store")]
mod kinds;
mod manual;
mod migrate;
#[cfg(feature = "_store")]
mod near;
#[cfg(feature = "_store")]
mod operations;
#[cfg(feature = "_store")]
mod place;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod plaintext;
mod plan;
#[cfg(feature = "rocketmq")]
mod probe;
#[cfg(feature = "_store")]
mod reason;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "_store")]
mod reserved;
#[cfg(feature = "_store")]
mod schemas;
#[cfg(feature = "_store")]
mod serve;
mod span;
#[cfg(feature = "_store")]
mod table;
#[cfg(feature = "_store")]
mod tasks;
#[cfg(feature = "_store")]
mod terminal;
#[cfg(feature = "_store")]
mod time;
#[cfg(feature = "_servers")]
mod whole;

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use mimalloc::MiMalloc;

/// A request over HTTP is a hundred small pieces of memory: with the system's allocator a tenth fewer are answered.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Delayed tasks with any delay, on RocketMQ, Redis or just a database.
#[derive(Debug, clap::Parser)]
#[command(name = "delayline", version, after_help = examples::TOOL, max_term_width = 100)]
struct Cli {
    /// Whether what is printed has colours; auto: at a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        display_order = 900
    )]
    color: color::Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(after_help = examples::PLAN)]
    Plan(plan::Plan),
    #[command(after_help = examples::MIGRATE)]
    Migrate(migrate::Migrate),
    #[cfg(feature = "_store")]
    #[command(after_help = examples::SERVE)]
    Serve(serve::Serve),
    #[cfg(feature = "_store")]
    #[command(after_help = examples::TASKS)]
    Tasks(tasks::Tasks),
    #[cfg(feature = "_store")]
    #[command(after_help = examples::KINDS)]
    Kinds(kinds::Kinds),
    #[cfg(feature = "_store")]
    #[command(after_help = examples::FORECAST)]
    Forecast(forecast::Forecast),
    #[cfg(feature = "_store")]
    #[command(after_help = examples::BENCH)]
    Bench(bench::Bench),
    #[cfg(feature = "rocketmq")]
    #[command(after_help = examples::PROBE)]
    Probe(probe::Probe),
    #[cfg(feature = "redis")]
    #[command(after_help = examples::REDIS)]
    Redis(redis::Redis),
    #[command(after_help = examples::COMPLETIONS)]
    Completions(manual::Completions),
    #[command(hide = true)]
    Man(manual::Man),
}

/// Why a command did not succeed: one line for people, and the exit status.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// An argument cannot be used; nothing was done.
    #[error("{0}")]
    Argument(String),
    /// A server could not do it.
    #[error("{0}")]
    Server(delayline::Error),
    /// What has been said shows that not all is well.
    #[cfg(feature = "_servers")]
    #[error("{0}")]
    Found(String),
    /// A signal asked it to end.
    #[cfg(feature = "_servers")]
    #[error("interrupted")]
    Interrupted,
    /// There is no runtime to do it in.
    #[cfg(feature = "_servers")]
    #[error("no runtime: {0}")]
    Runtime(io::Error),
    /// What there was to say could not be said.
    #[error("standard output: {0}")]
    Output(io::Error),
}

#[cfg(feature = "_store")]
impl From<operations::Refusal> for Failure {
    fn from(refusal: operations::Refusal) -> Self {
        match refusal {
            operations::Refusal::Error(error) => error.into(),
            refusal => Self::Found(refusal.to_string()),
        }
    }
}

impl From<delayline::Error> for Failure {
    fn from(error: delayline::Error) -> Self {
        if error.is_invalid() {
            return Self::Argument(error.to_string());
        }
        Self::Server(error)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed, the exit status is all that is left to say.
            let _ = writeln!(io::stderr(), "delayline: {failure}");
            ExitCode::from(match failure {
                Failure::Argument(_) => 2,
                _ => 1,
            })
        }
    }
}

fn run() -> Result<(), Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // The help and the version come as errors too.
        Err(shown) if !shown.use_stderr() => {
            color::Color::asked().apply();
            return show(&shown.render().ansi().to_string());
        }
        Err(refused) => return Err(Failure::Argument(arguments::one_line(&refused))),
    };
    cli.color.apply();
    match cli.command {
        Command::Plan(plan) => print(&plan.run()?),
        Command::Migrate(migrate) => print(&migrate.run()?),
        #[cfg(feature = "_store")]
        Command::Serve(serve) => serve.run(),
        #[cfg(feature = "_store")]
        Command::Tasks(tasks) => tasks.run(),
        #[cfg(feature = "_store")]
        Command::Kinds(kinds) => kinds.run(),
        #[cfg(feature = "_store")]
        Command::Forecast(forecast) => forecast.run(),
        #[cfg(feature = "_store")]
        Command::Bench(bench) => bench.run(),
        #[cfg(feature = "rocketmq")]
        Command::Probe(probe) => probe.run(),
        #[cfg(feature = "redis")]
        Command::Redis(redis) => redis.run(),
        Command::Completions(completions) => print(&completions.run()),
        Command::Man(man) => man.run(),
    }
}

/// Does what must be waited for.
#[cfg(feature = "_servers")]
fn in_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::Runtime)?;
    Ok(runtime.block_on(work))
}

/// What scripts read.
#[cfg(feature = "_store")]
fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))
}

/// The same of several, each in a line.
#[cfg(feature = "_store")]
fn json_lines(values: &[impl serde::Serialize]) -> Result<String, Failure> {
    let lines = values.iter().map(|value| Ok(json(value)? + "\n"));
    lines.collect()
}

/// Says on standard error what is not an answer.
#[cfg(feature = "_store")]
fn note(text: &str) {
    // If standard error is closed, there is no reader.
    let _ = writeln!(io::stderr(), "delayline: {text}");
}

/// Writes to standard output byte for byte, as for scripts.
fn print(text: &str) -> Result<(), Failure> {
    write(io::stdout().lock(), text)
}

/// Writes to standard output for people, without the colours where there are to be none.
fn show(text: &str) -> Result<(), Failure> {
    write(anstream::stdout().lock(), text)
}

/// Writes all of it; a reader that has closed its end has read what it wanted.
fn write(mut output: impl io::Write, text: &str) -> Result<(), Failure> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(closed) if closed.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::Output),
    }
}
