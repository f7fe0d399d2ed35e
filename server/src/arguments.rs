//! Says in one line why arguments cannot be used.

use std::error::Error as _;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind as Refused};
use delayline::Error;

use crate::Cli;

/// What the parser of arguments says in a page, in a line: the argument, its value, and what is allowed.
pub(crate) fn one_line(refused: &clap::Error) -> String {
    let context = |kind| {
        Some(match refused.get(kind)? {
            ContextValue::Strings(several) if kind == ContextKind::SuggestedSubcommand => {
                several.join(" or ")
            }
            context => context.to_string(),
        })
    };
    let argument = context(ContextKind::InvalidArg);
    let value = context(ContextKind::InvalidValue).filter(|value| !value.is_empty());
    // What our own parsers of values say, or one of a few words.
    let allowed = match (refused.source(), context(ContextKind::ValidValue)) {
        (Some(own), _) => Some(match own.downcast_ref() {
            // Which names the value as well.
            Some(Error::Invalid { allowed, .. }) => allowed.clone(),
            _ => own.to_string(),
        }),
        (None, words) => words.map(|words| format!("allowed are {words}")),
    };
    // An empty one is refused by our own parsers only.
    let value = value.or_else(|| refused.source().map(|_| String::new()));
    if let (Some(argument), Some(value), Some(allowed)) = (&argument, &value, allowed) {
        // `--levels <TABLE>`, `<DELAY>` and `[WORKLOAD]...`, as they are known.
        let name = argument.split(' ').next().unwrap_or_default();
        let name = name.trim_matches(['<', '>', '[', ']', '.']);
        let value = match Named::by_arguments().takes_address {
            true => shown(value),
            false => format!("{value:?}"),
        };
        return format!("{name} is {value}: {allowed}");
    }
    let reason = match refused.kind() {
        Refused::MissingSubcommand | Refused::DisplayHelpOnMissingArgumentOrSubcommand => {
            "a command is missing".to_owned()
        }
        Refused::InvalidSubcommand => {
            let name = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let meant = context(ContextKind::SuggestedSubcommand);
            not_built(&name).unwrap_or_else(|| not_known(&shown(&name)) + &perhaps(meant))
        }
        Refused::UnknownArgument => {
            unknown(&argument.unwrap_or_default()) + &perhaps(context(ContextKind::SuggestedArg))
        }
        Refused::TooManyValues => {
            let value = value.filter(|_| !Named::by_arguments().takes_address);
            let value = value.map_or_else(|| NOT_SHOWN.to_owned(), |value| shown(&value));
            format!("{} is {value}, but takes no value", argument.unwrap_or_default())
        }
        // These name arguments, and no values.
        Refused::MissingRequiredArgument | Refused::ArgumentConflict | Refused::InvalidValue => {
            first_paragraph(&refused.to_string())
        }
        Refused::InvalidUtf8 => "an argument is not UTF-8".to_owned(),
        _ => "the arguments do not fit together".to_owned(),
    };
    match &*Named::by_arguments().allowed() {
        "" => reason,
        allowed => format!("{reason}; allowed are {allowed}"),
    }
}

/// In place of a value.
const NOT_SHOWN: &str = "not shown, as it may hold a password";

/// A value as it was given, quoted; unless it may be an address, or a part of one.
fn shown(value: &str) -> String {
    match value.contains(['@', ':', '/', '=']) && !is_path(value) {
        true => NOT_SHOWN.to_owned(),
        false => format!("{value:?}"),
    }
}

/// Whether a value is the path of a file, and no part of an address that a shell has taken apart.
pub(crate) fn is_path(value: &str) -> bool {
    let looks_so = ["/", "./", "../", "~/"]
        .iter()
        .any(|start| value.starts_with(start))
        || [".toml", ".db"].iter().any(|end| value.ends_with(end));
    let is_address = |text: &str| text.contains("://") || text.contains('@');
    looks_so
        && !value.contains(['@', ':', '='])
        && !std::env::args_os().any(|given| is_address(&given.to_string_lossy()))
}

/// What is meant, where the parser has a guess: names of ours, never what was given.
fn perhaps(meant: Option<String>) -> String {
    meant.map_or_else(String::new, |meant| format!(", perhaps {meant} is meant"))
}

/// That an argument is not known. Of one that may be a password, or have one in it, only the name is shown: as in
/// `-psecret`, as other tools have it, or in an address that a shell has taken apart.
fn unknown(argument: &str) -> String {
    let name = match argument.strip_prefix("--") {
        Some(_) => argument.split('=').next().map(str::to_owned),
        None if !Named::by_arguments().takes_address => Some(whole_argument(argument)),
        None if is_path(argument) => Some(argument.to_owned()),
        None if argument.starts_with('-') => Some(argument.chars().take(2).collect()),
        None => None,
    };
    let hint = match argument.as_bytes() {
        [b'-', b'0'..=b'9', ..] => "; a value that begins with - comes after --",
        _ => "",
    };
    not_known(&name.map_or_else(|| NOT_SHOWN.to_owned(), |name| shown(&name))) + hint
}

/// That a command is there in other builds.
fn not_built(name: &str) -> Option<String> {
    let is_of_the_tool = Named::by_arguments().command.get_name() == "delayline";
    let feature = match name {
        _ if !is_of_the_tool => return None,
        "probe" if cfg!(not(feature = "rocketmq")) => "rocketmq",
        "redis" if cfg!(not(feature = "redis")) => "redis",
        "serve" | "tasks" | "kinds" | "forecast" | "bench" if cfg!(not(feature = "_store")) => {
            "sqlite, postgres, mysql or redis"
        }
        _ => return None,
    };
    Some(format!(
        "{name:?} needs the feature {feature}, which this build does not have"
    ))
}

fn not_known(shown: &str) -> String {
    match shown {
        NOT_SHOWN => format!("an argument is not known, and {NOT_SHOWN}"),
        shown => format!("{shown} is not known"),
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
fn whole_argument(start: &str) -> String {
    std::env::args_os()
        .skip(1)
        .map(|given| given.to_string_lossy().into_owned())
        .find(|given| given.starts_with(start))
        .unwrap_or_else(|| start.to_owned())
}

/// The command that was named, or else the tool.
struct Named {
    command: clap::Command,
    /// Whether the address of a server may be among its arguments.
    takes_address: bool,
}

impl Named {
    fn by_arguments() -> Self {
        let mut tool = Cli::command();
        tool.build();
        let mut command = &tool;
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            match command.find_subcommand(&word) {
                Some(named) => command = named,
                // The option that may stand before a command, and its value.
                None if word == "--color" => drop(words.next()),
                None if word.to_string_lossy().starts_with("--color=") => {}
                None => break,
            }
        }
        Self {
            command: command.clone(),
            // A call without a command may lack only that.
            takes_address: command.get_name() != "plan",
        }
    }

    /// Its arguments and commands.
    fn allowed(&self) -> String {
        let arguments = self.command.get_arguments().map(ToString::to_string);
        let commands = self
            .command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let commands = commands.map(|command| command.get_name().to_owned());
        commands.chain(arguments).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(all(test, feature = "_store"))]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_value_is_refused_by_its_option_and_not_taken_for_another() {
        let long = format!("kinds pause k --reason {}", "x".repeat(501));
        for (words, said) in [
            (
                "tasks reschedule k 1 --after -5m",
                "--after is \"-5m\": allowed are whole numbers with",
            ),
            (
                "tasks reschedule k 1 --at -1",
                "--at is \"-1\": allowed is a moment",
            ),
            (
                "tasks edit k 1 --after -5m",
                "--after is \"-5m\": allowed are whole numbers with",
            ),
            (
                "tasks edit k 1 --at tomorrow",
                "--at is \"tomorrow\": allowed is a moment",
            ),
            ("tasks edit k 1 --at -1", "--at is \"-1\": allowed is a moment"),
            (
                "tasks list k --due-before -1",
                "--due-before is \"-1\": allowed is a moment",
            ),
            (
                "tasks list k --due-after -1",
                "--due-after is \"-1\": allowed is a moment",
            ),
            ("tasks show --id 7", "--id is \"7\": allowed is a UUID"),
            (
                "kinds pause k --until -1",
                "--until is \"-1\": allowed is a moment",
            ),
            (&long, "--reason is \"xxx"),
            ("plan -15", "DELAY is \"-15\": allowed are whole numbers with"),
            (
                "tasks list k --limit 0",
                "--limit is \"0\": allowed are whole numbers from 1 to 1000000",
            ),
            (
                "tasks list k --limit 1000001",
                "--limit is \"1000001\": allowed are whole numbers",
            ),
            (
                "tasks list k --limit -1",
                "--limit is \"-1\": allowed are whole numbers",
            ),
            (
                "tasks find k --limit x",
                "--limit is \"x\": allowed are whole numbers",
            ),
            (
                "tasks find k --limit 99999999999999999999",
                "--limit is \"99999999999999999999\": allowed are",
            ),
        ] {
            let refused = Cli::try_parse_from(["delayline"].into_iter().chain(words.split(' ')));
            let line = one_line(&refused.unwrap_err());
            assert!(line.starts_with(said), "{words}: {line}");
        }
        for words in [
            "tasks list k --key-prefix -a --error -b",
            "tasks find --key-prefix -a",
            "tasks find -1",
        ] {
            let taken = Cli::try_parse_from(["delayline"].into_iter().chain(words.split(' ')));
            assert!(taken.is_ok(), "{words}: {taken:?}");
        }
    }
}
