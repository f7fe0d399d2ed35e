//! The example `order_auto_cancel`, as a user runs it: to its end, and killed in the middle and started again.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

#[path = "support/example.rs"]
mod example;
#[cfg(all(feature = "rocketmq", feature = "redis"))]
#[path = "support/redis/mod.rs"]
mod redis_server;

use std::process::{Output, Stdio};
use std::time::Duration;

use delayline::store::SqliteStore;
use delayline::{Scheduler, Shift, State, Target};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// So that a test that hangs ends some time; it says nothing about how long anything should take.
const HANGS_AFTER: Duration = Duration::from_secs(180);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(example::example("order_auto_cancel"));
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn run(arguments: &[&str]) -> Output {
    let output = command(arguments).output();
    timeout(HANGS_AFTER, output).await.expect("it hangs").unwrap()
}

/// The last line of what it said, if it went well.
fn summary(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    said.lines().last().unwrap().to_owned()
}

/// A run that is watched.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Goes on until `times` lines have said what `moment` says.
    async fn until(&mut self, moment: &str, times: usize) {
        let mut seen = 0;
        while seen < times {
            let line = timeout(HANGS_AFTER, self.lines.next_line())
                .await
                .expect("it hangs");
            let line = line.unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended before it said {moment:?} {times} times"));
            seen += usize::from(line.contains(moment));
        }
    }

    /// By SIGKILL: it has no say in it.
    async fn kill(mut self) {
        self.child.start_kill().unwrap();
        assert!(!self.child.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn a_run_ends_with_every_order_paid_or_cancelled_on_time_and_says_so() {
    let arguments = ["--orders", "6", "--delay", "2s..3s", "--pay-every", "3", "--json"];
    let line = summary(&run(&arguments).await);
    let counts =
        r#"{"orders":6,"paid":2,"extended":1,"cancelled":4,"lost":0,"twice":0,"early":0,"hops_max":"#;
    assert!(line.starts_with(counts), "{line}");
    let value: Value = serde_json::from_str(&line).unwrap();
    // Each chain began with a level, so each was moved on at least once.
    assert!(value["hops_max"].as_u64().unwrap() >= 1, "{line}");
    let late = &value["late_ms"];
    let [p50, p99, max] = ["p50", "p99", "max"].map(|name| late[name].as_u64().unwrap());
    assert!(p50 <= p99 && p99 <= max, "{line}");
    let woken_by = value["woken_by"].as_object().unwrap();
    let woken: u64 = woken_by.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(woken, 4, "{line}");
}

/// Every order has ended, once, and not before its time.
fn assert_all_ended(line: &str, orders_at_least: u64) -> Value {
    let value: Value = serde_json::from_str(line).unwrap();
    let count = |name: &str| value[name].as_u64().unwrap();
    assert!(count("orders") >= orders_at_least, "{line}");
    assert_eq!(count("paid") + count("cancelled"), count("orders"), "{line}");
    assert!(count("cancelled") > 0, "{line}");
    for wrong in ["lost", "twice", "early"] {
        assert_eq!(count(wrong), 0, "{line}");
    }
    value
}

/// Kills a run when it has opened so many of its sixty orders and then said `moment` so many times, and starts it again.
async fn is_finished_after_a_kill(opened: usize, moment: &str, times: usize) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("shop.db");
    let db = db.to_str().unwrap();
    let sixty = [
        "--db",
        db,
        "--orders",
        "60",
        "--delay",
        "1s..6s",
        "--pay-every",
        "5",
    ];
    let mut first = Watched::start(&sixty);
    first.until("opened", opened).await;
    first.until(moment, times).await;
    first.kill().await;
    let line = summary(&run(&["--db", db, "--orders", "0", "--json"]).await);
    assert_all_ended(&line, opened as u64);
}

#[tokio::test]
async fn a_run_killed_while_it_opens_orders_is_finished_by_the_next() {
    is_finished_after_a_kill(19, "opened", 1).await;
}

#[tokio::test]
async fn a_run_killed_between_an_effect_and_the_word_that_it_is_done_is_finished_by_the_next() {
    // It is said when the order is cancelled and the task is not yet done.
    is_finished_after_a_kill(60, "unpaid: cancelled", 5).await;
}

#[tokio::test]
async fn a_run_killed_between_two_hops_is_finished_by_the_next() {
    is_finished_after_a_kill(60, " hop ", 5).await;
}
