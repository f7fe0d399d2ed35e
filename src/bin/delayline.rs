//! The command-line tool. Each command has a file in the folder beside this one.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[path = "delayline/database.rs"]
mod database;
#[path = "delayline/migrate.rs"]
mod migrate;
#[path = "delayline/plan.rs"]
mod plan;
#[cfg(feature = "rocketmq")]
#[path = "delayline/probe.rs"]
mod probe;
#[cfg(feature = "redis")]
#[path = "delayline/redis.rs"]
mod redis;
#[path = "delayline/span.rs"]
mod span;

use std::error::Error as _;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind as Refused};
use clap::{CommandFactory as _, Parser as _};

/// Any delay on the RocketMQ brokers you have.
#[derive(Debug, clap::Parser)]
#[command(name = "delayline", version, arg_required_else_help = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(plan::Plan),
    Migrate(migrate::Migrate),
    #[cfg(feature = "rocketmq")]
    Probe(probe::Probe),
    #[cfg(feature = "redis")]
    Redis(redis::Redis),
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
    #[cfg(any(feature = "redis", feature = "rocketmq"))]
    #[error("{0}")]
    Found(String),
    /// Somebody wanted it to end.
    #[cfg(feature = "rocketmq")]
    #[error("interrupted")]
    Interrupted,
    /// There is no runtime to do it in.
    #[cfg(any(
        feature = "postgres",
        feature = "mysql",
        feature = "sqlite",
        feature = "redis",
        feature = "rocketmq"
    ))]
    #[error("no runtime: {0}")]
    Runtime(io::Error),
    /// What there was to say could not be said.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl From<delayline::Error> for Failure {
    fn from(error: delayline::Error) -> Self {
        match error {
            delayline::Error::Invalid { .. } => Self::Argument(error.to_string()),
            error => Self::Server(error),
        }
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
        Err(shown) if !shown.use_stderr() => return print(&shown.to_string()),
        Err(refused) => return Err(Failure::Argument(one_line(&refused))),
    };
    match cli.command {
        Command::Plan(plan) => print(&plan.run()?),
        Command::Migrate(migrate) => print(&migrate.run()?),
        #[cfg(feature = "rocketmq")]
        Command::Probe(probe) => probe.run(),
        #[cfg(feature = "redis")]
        Command::Redis(redis) => redis.run(),
    }
}

/// Does what must be waited for.
#[cfg(any(
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "redis",
    feature = "rocketmq"
))]
fn in_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::Runtime)?;
    Ok(runtime.block_on(work))
}

/// Writes to standard output; a reader that has closed it has read what it wanted.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(closed) if closed.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::Output),
    }
}

/// What the parser of arguments says in a page, in a line: the argument, its value, and what is allowed.
fn one_line(refused: &clap::Error) -> String {
    let context = |kind| refused.get(kind).map(ToString::to_string);
    if let (Some(argument), Some(value), Some(allowed)) = (
        context(ContextKind::InvalidArg),
        context(ContextKind::InvalidValue),
        // What our own parsers of values say.
        refused.source(),
    ) {
        // `--levels <TABLE>` and `<DELAY>`, as they are known.
        let name = argument.split(' ').next().unwrap_or_default();
        return format!(
            "{} is {}: {allowed}",
            name.trim_matches(['<', '>']),
            shown(&value)
        );
    }
    // One of a few words.
    if let (Some(argument), Some(value), Some(allowed)) = (
        context(ContextKind::InvalidArg),
        context(ContextKind::InvalidValue).filter(|value| !value.is_empty()),
        context(ContextKind::ValidValue),
    ) {
        return format!(
            "{} is {}: allowed are {allowed}",
            argument.trim_matches(['<', '>']),
            shown(&value)
        );
    }
    let unknown = |name: String| format!("{} is not known", shown(&name));
    let reason = match refused.kind() {
        Refused::MissingSubcommand => Some("a command is missing".to_owned()),
        Refused::InvalidSubcommand => context(ContextKind::InvalidSubcommand).map(unknown),
        Refused::UnknownArgument => context(ContextKind::InvalidArg).map(whole_argument).map(unknown),
        Refused::TooManyValues => context(ContextKind::InvalidArg)
            .zip(context(ContextKind::InvalidValue))
            .map(|(argument, value)| format!("{argument} is {}, but takes no value", shown(&value))),
        _ => None,
    };
    let reason = reason.unwrap_or_else(|| first_paragraph(&refused.to_string()));
    format!("{reason}; allowed are {}", allowed())
}

/// A value as it was given, quoted. A URL may hold a password, so of anything like it only the scheme is shown.
fn shown(value: &str) -> String {
    match value.split_once("://") {
        Some((scheme, _)) => format!("{:?}", format!("{scheme}://...")),
        None => format!("{value:?}"),
    }
}

/// The first paragraph of a page, as one line.
fn first_paragraph(page: &str) -> String {
    let paragraph = page.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = paragraph
        .trim_start_matches("error: ")
        .split_whitespace()
        .collect();
    words.join(" ")
}

/// Of `-15m` the parser knows only `-1`.
fn whole_argument(start: String) -> String {
    std::env::args_os()
        .skip(1)
        .map(|given| given.to_string_lossy().into_owned())
        .find(|given| !start.starts_with("--") && given.starts_with(&start))
        .unwrap_or(start)
}

/// The arguments and commands of the command that was named, or else of the tool.
fn allowed() -> String {
    let mut tool = Cli::command();
    tool.build();
    let mut command = &tool;
    for name in std::env::args_os().skip(1) {
        match command.find_subcommand(name) {
            Some(named) => command = named,
            None => break,
        }
    }
    let arguments = command.get_arguments().map(ToString::to_string);
    let commands = command
        .get_subcommands()
        .map(|command| command.get_name().to_owned());
    commands.chain(arguments).collect::<Vec<_>>().join(", ")
}
