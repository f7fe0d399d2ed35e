//! The example `order_auto_cancel`, as a user runs it: to its end, and killed in the middle and started again.

use std::process::Output;
use std::time::Duration;

use delayline::store::{SqliteStore, Target};
use delayline::{Scheduler, Shift, State};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use crate::program::{self, HANGS_AFTER};

async fn run(arguments: &[&str]) -> Output {
    program::run("order_auto_cancel", arguments).await
}

/// Returns the last line of a successful run.
fn summary(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    said.lines().last().unwrap().to_owned()
}

/// A run whose output is watched.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        let mut child = program::command("order_auto_cancel", arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits until `times` lines have said what `moment` says.
    async fn until(&mut self, moment: &str, times: usize) {
        let mut seen = 0;
        while seen < times {
            let line = timeout(HANGS_AFTER, self.lines.next_line())
                .await
                .expect("it hangs");
            let Some(line) = line.unwrap() else {
                let mut complained = String::new();
                let errors = self.child.stderr.as_mut().unwrap();
                errors.read_to_string(&mut complained).await.unwrap();
                panic!("it ended before it said {moment:?} {times} times: {complained}");
            };
            seen += usize::from(line.contains(moment));
        }
    }

    /// Kills it by SIGKILL.
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
    // Each chain began with a level, so each had at least one hop.
    assert!(value["hops_max"].as_u64().unwrap() >= 1, "{line}");
    let late = &value["late_ms"];
    let [p50, p99, max] = ["p50", "p99", "max"].map(|name| late[name].as_u64().unwrap());
    assert!(p50 <= p99 && p99 <= max, "{line}");
    let woken_by = value["woken_by"].as_object().unwrap();
    let woken: u64 = woken_by.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(woken, 4, "{line}");
}

/// Asserts that every order has ended, once, and not before its time.
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

/// Kills a run when it has opened so many of its sixty orders and then said `moment` so many times, and starts it
/// again.
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
    // This line comes when the order is cancelled and the task is not yet done.
    is_finished_after_a_kill(60, "unpaid: cancelled", 5).await;
}

#[tokio::test]
async fn a_run_killed_between_two_hops_is_finished_by_the_next() {
    is_finished_after_a_kill(60, " hop ", 5).await;
}

#[tokio::test]
async fn steps_that_were_half_done_are_finished_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("shop.db");
    let file = db.to_str().unwrap();
    let four = [
        "--db",
        file,
        "--orders",
        "4",
        "--delay",
        "4s..5s",
        "--pay-every",
        "0",
    ];
    let mut first = Watched::start(&four);
    first.until("opened", 4).await;
    first.kill().await;

    // An order without its task, a payment whose task lives on, and a task that was moved without its order.
    let url = format!("sqlite://{file}");
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO orders (created_ms, due_ms) SELECT created_ms, due_ms FROM orders WHERE id = 1;
         UPDATE orders SET state = 'paid' WHERE id = 2;
         INSERT INTO effects (order_id, effect, at_ms) VALUES (2, 'paid', 0);",
    )
    .execute(&pool)
    .await
    .unwrap();
    pool.close().await;
    let scheduler = Scheduler::new(SqliteStore::open(&db).await.unwrap());
    let task = |order: &str| Target::from(("order.cancel", order));
    let moved = scheduler
        .shift(task("3"), Shift::Later(Duration::from_secs(1)))
        .await;
    assert!(moved.unwrap().is_done());

    let line = summary(&run(&["--db", file, "--orders", "0", "--json"]).await);
    let counts = r#"{"orders":5,"paid":1,"extended":1,"cancelled":4,"lost":0,"twice":0,"early":0,"#;
    assert!(line.starts_with(counts), "{line}");
    // The paid order's task was cancelled before it was due.
    let task = scheduler.find(task("2")).await.unwrap().unwrap();
    assert_eq!(task.state, State::Cancelled);
}

#[tokio::test]
async fn arguments_that_cannot_be_used_are_refused_in_one_line() {
    for arguments in [
        &["--orders", "many"][..],
        &["--delay", "soon"],
        &["--delay", "4s..2s"],
        &["--delay", "1s..soon"],
        &["--pay-every", "-1"],
        &["--handoff", "12"],
        &["--handoff", "48h"],
        &["--tolerance", ""],
        &["--db"],
        &["--unknown"],
        &["surplus"],
        #[cfg(not(feature = "rocketmq"))]
        &["--rocketmq", "localhost:9876"],
        #[cfg(not(feature = "redis"))]
        &["--redis", "redis://localhost"],
    ] {
        let output = run(arguments).await;
        let complained = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complained}");
        assert_eq!(complained.lines().count(), 1, "{arguments:?}: {complained}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[cfg(not(all(feature = "rocketmq", feature = "redis")))]
#[tokio::test]
async fn a_server_without_its_feature_is_refused_by_name() {
    for (option, feature) in [("--rocketmq", "rocketmq"), ("--redis", "redis")] {
        if (feature == "rocketmq" && cfg!(feature = "rocketmq"))
            || (feature == "redis" && cfg!(feature = "redis"))
        {
            continue;
        }
        let output = run(&[option, "anything"]).await;
        let complained = String::from_utf8(output.stderr).unwrap();
        assert!(
            complained.contains(&format!("--features {feature}")),
            "{complained}"
        );
    }
}

/// On real servers: a broker that is there, and a Redis of the test's own.
#[cfg(all(feature = "rocketmq", feature = "redis"))]
mod servers {
    use super::*;
    use crate::redis_server::RedisServer;

    /// All runs are of one consumer group: two at once would take each other's wake-ups, which are left to the sweep.
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    fn nameserver() -> String {
        std::env::var("DELAYLINE_ROCKETMQ").expect(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, or start one by: \
             scripts/rocketmq start DIR",
        )
    }

    /// The last 3 s of each delay in Redis, so that there is something to wipe.
    const DELAYS: [&str; 8] = [
        "--delay",
        "2s..9s",
        "--pay-every",
        "5",
        "--handoff",
        "3s",
        "--tolerance",
        "0s",
    ];

    #[tokio::test]
    async fn a_wiped_redis_loses_no_order() {
        let _alone = ONE_AT_A_TIME.lock().await;
        let redis = RedisServer::start();
        let (nameserver, url) = (nameserver(), redis.url());
        let servers = [
            "--rocketmq",
            &nameserver,
            "--redis",
            &url,
            "--orders",
            "60",
            "--json",
        ];
        let mut shop = Watched::start(&[&servers[..], &DELAYS].concat());
        // A hop has been recorded: the wake-ups of this and others are in Redis, or about to be.
        shop.until(" hop ", 10).await;
        wipe(&redis);
        let mut last = String::new();
        while let Some(line) = timeout(HANGS_AFTER, shop.lines.next_line())
            .await
            .expect("it hangs")
            .unwrap()
        {
            last = line;
        }
        assert!(shop.child.wait().await.unwrap().success(), "{last}");
        let value = assert_all_ended(&last, 60);
        assert!(
            value["woken_by"]["sweep"].as_u64().unwrap() > 0,
            "nothing was wiped: {last}"
        );
    }

    #[tokio::test]
    async fn a_killed_run_and_a_wiped_redis_lose_no_order() {
        let _alone = ONE_AT_A_TIME.lock().await;
        let redis = RedisServer::start();
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("shop.db");
        let (nameserver, url) = (nameserver(), redis.url());
        let servers = [
            "--rocketmq",
            &nameserver,
            "--redis",
            &url,
            "--db",
            db.to_str().unwrap(),
        ];
        let mut shop = Watched::start(&[&servers[..], &["--orders", "60"], &DELAYS].concat());
        shop.until("unpaid: cancelled", 10).await;
        shop.kill().await;
        wipe(&redis);
        let line = summary(&run(&[&servers[..], &["--orders", "0", "--json"]].concat()).await);
        // However many there were by then.
        assert_all_ended(&line, 10);
    }

    /// As 15 minutes are `10m` and `5m` of RocketMQ's own table, 15 seconds are two levels of the tests' broker.
    #[tokio::test]
    async fn fifteen_seconds_are_a_hop_of_ten_and_one_of_five() {
        let _alone = ONE_AT_A_TIME.lock().await;
        let redis = RedisServer::start();
        let (nameserver, url) = (nameserver(), redis.url());
        let orders = ["--orders", "20", "--delay", "15s", "--pay-every", "0"];
        let servers = ["--rocketmq", &nameserver, "--redis", &url];
        let output = run(&[&servers[..], &orders].concat()).await;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        // Not all: one that comes late from its first hop, or is moved, takes others.
        let took_two = |line: &str| line.contains("unpaid: cancelled") && line.contains("hops=2");
        assert!(said.lines().any(took_two), "{said}");
    }

    fn wipe(redis: &RedisServer) {
        ::redis::cmd("FLUSHALL").exec(&mut redis.admin()).unwrap();
    }
}
