//! The command-line tool, run as people and scripts run it: what it prints where, and its exit status.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "sqlite")]
#[path = "cli/bench.rs"]
mod bench;
#[cfg(feature = "sql-tls")]
#[path = "../../tests/support/redis/certificates.rs"]
#[allow(clippy::duplicate_mod)] // It is there with the servers of Redis, too, if these are.
mod certificates;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../tests/support/database.rs"]
mod database;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[path = "cli/migrate.rs"]
mod migrate;
#[cfg(feature = "sqlite")]
#[path = "cli/place.rs"]
mod place;
#[path = "cli/plan.rs"]
mod plan;
#[cfg(feature = "rocketmq")]
#[path = "cli/probe.rs"]
mod probe;
#[cfg(all(feature = "redis", feature = "sqlite"))]
#[path = "cli/redis.rs"]
mod redis_commands;
#[cfg(all(feature = "redis", feature = "sqlite"))]
#[path = "../../tests/support/redis/mod.rs"]
mod redis_server;
#[cfg(feature = "sqlite")]
#[path = "cli/remote.rs"]
mod remote;
#[cfg(feature = "rocketmq")]
#[path = "../../tests/support/rocketmq.rs"]
mod rocketmq;
#[cfg(feature = "sqlite")]
#[path = "serve/server.rs"]
#[allow(dead_code, reason = "the tests of the server need more of it")]
mod server;
#[cfg(feature = "sqlite")]
#[path = "cli/settings.rs"]
mod settings;
#[cfg(feature = "sqlite")]
#[path = "cli/tasks.rs"]
mod tasks;
#[cfg(all(unix, feature = "sqlite"))]
#[path = "cli/terminal.rs"]
mod terminal;
#[cfg(feature = "sql-tls")]
#[path = "cli/tls.rs"]
mod tls;

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn tool<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_delayline"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output<A: AsRef<OsStr>>(arguments: &[A]) -> Output {
    tool(arguments).output().unwrap()
}

/// What the tool prints when all is well, which is all that it does then.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = output(arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), errors.as_str()),
        (Some(0), ""),
        "{arguments:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The one line that the tool says when it refuses its arguments, which is all that it does then.
#[track_caller]
fn refused<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    let output = output(arguments);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert_eq!(output.stdout, b"", "{line}");
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.contains(char::is_control), "{line:?}");
    line.strip_prefix("delayline: ").unwrap().to_owned()
}

#[test]
fn arguments_that_do_not_fit_together_are_refused_in_one_line() {
    const PLAN: &str = "<DELAY>, --levels <TABLE>, --timers <DURATION>, --handoff <DURATION>, --horizon <DURATION>, --tolerance <DURATION>, --json, --color <WHEN>, --help";
    const TASKS: &str = "list, find, show, explain, cancel, edit, reschedule, shift, run, redrive, dismiss, rerun, help, --color <WHEN>, --help";
    let tool = [
        "plan, migrate, serve, tasks, kinds, forecast, bench, ",
        if cfg!(feature = "rocketmq") { "probe, " } else { "" },
        if cfg!(feature = "redis") { "redis, " } else { "" },
        "completions, help, --color <WHEN>, --help, --version",
    ];
    let tool = &*tool.concat();
    for (arguments, reason, allowed) in [
        (&[][..], "a command is missing", tool),
        (&["bogus"], "\"bogus\" is not known", tool),
        (
            &["plam", "15m"],
            "\"plam\" is not known, perhaps plan is meant",
            tool,
        ),
        (&["tasks"], "a command is missing", TASKS),
        (
            &["--color", "never", "tasks", "--bogus"],
            "\"--bogus\" is not known",
            TASKS,
        ),
        (
            &["tasks", "--color=never", "canel"],
            "\"canel\" is not known, perhaps change or cancel is meant",
            TASKS,
        ),
        (&["/etc/no.toml"], "\"/etc/no.toml\" is not known", tool),
        (
            &["/ss", "postgres://u:pa"],
            "an argument is not known, and not shown, as it may hold a password",
            tool,
        ),
        (&["--bogus"], "\"--bogus\" is not known", tool),
        (
            &["a\n\n\u{1b}[31mb"],
            "\"a\\n\\n\\u{1b}[31mb\" is not known",
            tool,
        ),
        (
            &["plan"],
            "the following required arguments were not provided: <DELAY>",
            PLAN,
        ),
        (&["plan", "15m", "16m"], "\"16m\" is not known", PLAN),
        (&["plan", "15m", "--bogus"], "\"--bogus\" is not known", PLAN),
        (
            &["plan", "--handof", "1s", "15m"],
            "\"--handof\" is not known, perhaps --handoff is meant",
            PLAN,
        ),
        (
            &["plan", "--json", "--j", "15m"],
            "\"--j\" is not known, perhaps --json is meant",
            PLAN,
        ),
        (
            &["plan", "-15m"],
            "\"-15m\" is not known; a value that begins with - comes after --",
            PLAN,
        ),
        (&["plan", "15m", "-x"], "\"-x\" is not known", PLAN),
        (&["plan", "15m", "--a\n\nb"], "\"--a\\n\\nb\" is not known", PLAN),
        (
            &["plan", "15m", "--levels"],
            "a value is required for '--levels <TABLE>' but none was supplied",
            PLAN,
        ),
        (
            &["plan", "15m", "--levels", "1s", "--timers", "3d"],
            "the argument '--levels <TABLE>' cannot be used with '--timers <DURATION>'",
            PLAN,
        ),
        (
            &["plan", "15m", "--json", "--json"],
            "the argument '--json' cannot be used multiple times",
            PLAN,
        ),
        (
            &["plan", "15m", "--json=a\u{1b}b"],
            "--json is \"a\\u{1b}b\", but takes no value",
            PLAN,
        ),
    ] {
        assert_eq!(refused(arguments), format!("{reason}; allowed are {allowed}"));
    }
    assert_eq!(refused(&["help", "plan", "x"]), "\"x\" is not known");
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_text_are_refused_in_one_line() {
    use std::os::unix::ffi::OsStrExt as _;

    let garbled = OsStr::from_bytes(b"15\xff\xfem");
    for arguments in [&[garbled][..], &[OsStr::new("plan"), garbled]] {
        let line = refused(arguments);
        assert!(line.contains("UTF-8") || line.contains("is not known"), "{line}");
    }
}

#[test]
fn a_command_of_another_build_names_its_feature() {
    for (command, feature, is_here) in [
        ("probe", "rocketmq", cfg!(feature = "rocketmq")),
        ("redis", "redis", cfg!(feature = "redis")),
    ] {
        let said = format!(
            "{command:?} needs the feature {feature}, which this build does not have; allowed are plan, migrate, serve, "
        );
        assert_eq!(!refused(&[command]).starts_with(&said), is_here);
    }
}

#[test]
fn help_and_version_are_printed() {
    for arguments in [&["--help"][..], &["-h"], &["help"]] {
        let help = printed(arguments);
        assert!(
            help.contains("Usage: delayline [OPTIONS] <COMMAND>") && help.contains("plan"),
            "{help}"
        );
    }
    for arguments in [&["plan", "--help"][..], &["plan", "-h"], &["help", "plan"]] {
        let help = printed(arguments);
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        // Wherever its lines end.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "Usage: delayline plan [OPTIONS] <DELAY>",
            "--levels <TABLE>",
            "[default: \"1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h\"]",
            "--handoff <DURATION>",
            "[default: 1s]",
            "--horizon <DURATION>",
            "[default: 1d]",
            "--tolerance <DURATION>",
            "[default: 200ms]",
            "--json",
        ] {
            assert!(help.contains(expected), "{expected} is not in {help}");
        }
    }
    for arguments in [["--version"], ["-V"]] {
        assert_eq!(
            printed(&arguments),
            concat!("delayline ", env!("CARGO_PKG_VERSION"), "\n")
        );
    }
}

#[test]
fn shells_and_man_are_told_of_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        let mut words = script.split(|c: char| !c.is_alphanumeric());
        assert!(script.contains("plan") && script.contains("migrate"), "{shell}");
        assert!(!words.any(|word| word == "man"), "{shell} offers what is hidden");
    }
    assert!(refused(&["completions", "bsh"]).starts_with("SHELL is \"bsh\": allowed are bash"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(printed(&["man", path]), "");
    let page = std::fs::read_to_string(folder.path().join("delayline-plan.1")).unwrap();
    assert!(
        page.contains("--levels") || page.contains("\\-\\-levels"),
        "{page}"
    );
    let nowhere = format!("{path}/nowhere");
    assert!(refused(&["man", &nowhere]).contains(&nowhere));
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for arguments in [
        &["plan", "1h"][..],
        &["plan", "1h", "--json"],
        &["--help"],
        &["--version"],
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = tool(arguments).stdout(writer).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), errors.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_closed_standard_error_leaves_the_exit_status() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let output = tool(&["plan", "1x"]).stderr(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = tool(&["plan", "1h"]).stdout(full).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.starts_with("delayline: standard output: ") && errors.lines().count() == 1,
        "{errors}"
    );
}
