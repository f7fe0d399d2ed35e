//! What the tool does at a terminal, and where there is none.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use nix::pty::openpty;

use super::tasks::{answer, many};
use super::*;

/// What the tool shows at a terminal at which this is typed, and its exit status.
fn at_terminal(arguments: &[&str], typed: &str) -> (String, Option<i32>) {
    let pty = openpty(None, None).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = tool(arguments);
    command.env_remove("NO_COLOR").env("TERM", "xterm");
    let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
    let mut child = child.unwrap();
    drop(command);
    drop::<OwnedFd>(pty.slave);
    let mut terminal = File::from(pty.master);
    terminal.write_all(typed.as_bytes()).unwrap();
    // Where the last process has left, Linux says so by an error.
    let mut shown = Vec::new();
    let _ = terminal.read_to_end(&mut shown);
    let status = child.wait().unwrap();
    (String::from_utf8(shown).unwrap(), status.code())
}

#[tokio::test]
async fn many_are_changed_only_when_that_is_wanted() {
    let (_folder, file) = many(101).await;
    let cancel = ["tasks", "cancel", "k", "--all", "--store", &file];
    let line = refused(&cancel);
    assert_eq!(
        line,
        "101 tasks match (kind k, scheduled), and cancel changes them all: nothing was done; add --yes to do it"
    );
    let (shown, status) = at_terminal(&cancel, "n\n");
    assert!(
        shown.contains("101 tasks match (kind k, scheduled)") && shown.contains("Go on? [y/N]"),
        "{shown}"
    );
    assert_eq!(status, Some(1), "{shown}");
    let counted = answer(&file, &["tasks", "cancel", "k", "--all", "--dry-run"]);
    assert_eq!(counted["matched"], 101);
    let (shown, status) = at_terminal(&cancel, "YES\n");
    assert!(shown.contains("101 were changed"), "{shown}");
    assert_eq!(status, Some(0));
}

#[tokio::test]
async fn a_hundred_are_changed_without_a_question() {
    let (_folder, file) = many(100).await;
    let moved = answer(&file, &["tasks", "shift", "k", "--all", "--by", "+1h"]);
    assert_eq!(moved["answers"]["done"], 100);
}

#[tokio::test]
async fn a_terminal_has_distances_and_colours_and_a_pipe_has_not() {
    let (_folder, file) = many(1).await;
    let list = ["tasks", "list", "k", "--store", &file];
    let plain = printed(&list);
    assert!(!plain.contains('\u{1b}') && plain.contains("Z  "), "{plain}");
    let (shown, _) = at_terminal(&list, "");
    assert!(
        shown.contains("\u{1b}[1mDUE") && shown.contains("in 59 m"),
        "{shown}"
    );
    let (shown, _) = at_terminal(&[&list[..], &["--color", "never"]].concat(), "");
    assert!(!shown.contains('\u{1b}') && shown.contains("in 59 m"), "{shown}");
    let forced = printed(&[&list[..], &["--color", "always"]].concat());
    assert!(
        forced.contains("\u{1b}[1mDUE") && forced.contains("Z"),
        "{forced}"
    );
    // Of the help, too, which goes before all else.
    let (shown, _) = at_terminal(&["--color=never", "plan", "--help"], "");
    assert!(!shown.contains('\u{1b}'), "{shown}");
    assert!(printed(&["plan", "--help", "--color", "always"]).contains('\u{1b}'));
    let json = printed(&[&list[..], &["--json", "--color", "always"]].concat());
    assert!(!json.contains('\u{1b}'), "{json}");
}
