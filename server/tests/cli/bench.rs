//! `delayline bench` with few tasks: what it says, and that nothing of it stays. No time is looked at.

use std::path::Path;
#[cfg(unix)]
use std::process::Child;

use tempfile::TempDir;

use super::*;

/// Runs it without a `DATABASE_URL` of the machine's.
fn bench(arguments: &[&str]) -> Command {
    let mut command = tool(&[&["bench"], arguments].concat());
    command.env_remove("DATABASE_URL");
    command
}

/// The figures that it prints in JSON when all is well.
#[track_caller]
fn figures(arguments: &[&str]) -> Vec<Value> {
    let output = bench(&[arguments, &["--json"]].concat()).output().unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), complained.as_str()),
        (Some(0), ""),
        "{arguments:?}"
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A folder for a file that is not there, and its path.
fn file() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db").to_str().unwrap().to_owned();
    (folder, file)
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

/// Each figure has what it should, and nothing went wrong.
#[track_caller]
fn are_well_formed(figures: &[Value], workloads: &[(&str, usize)], store: &str) {
    for (workload, count) in workloads {
        let of = |figure: &&Value| figure["workload"] == *workload;
        let found: Vec<_> = figures.iter().filter(of).collect();
        assert_eq!(found.len(), *count, "{workload}: {figures:#?}");
        for figure in found {
            assert_eq!(figure["system"], "delayline");
            assert_eq!(figure["store"], store);
            assert!(
                figure["what"].is_string() && figure["aim"].is_string(),
                "{figure}"
            );
            for fault in ["lost", "twice", "early"] {
                assert_eq!(figure[fault], 0, "{figure}");
            }
            match *workload {
                "W1" | "W2" | "W2L" | "W6" | "C2" | "C3" => {
                    assert!(
                        figure["per_second"].is_f64() && figure["seconds"].is_f64(),
                        "{figure}"
                    );
                    assert!(figure["limit"]["per_second"].is_f64(), "{figure}");
                    assert!(
                        figure["ratio"].is_f64() && figure["is_met"].is_boolean(),
                        "{figure}"
                    );
                }
                "W3" | "C1" => {
                    assert!(figure["late_ms"]["p99"].is_f64(), "{figure}");
                    assert!(figure["limit"]["late_ms"]["max"].is_f64(), "{figure}");
                }
                "W4" => assert!(figure["limit"]["bytes_each"].is_f64(), "{figure}"),
                "W5" => assert!(figure["late_ms"]["p50"].is_f64(), "{figure}"),
                _ => {}
            }
        }
    }
    let all: usize = workloads.iter().map(|(_, count)| count).sum();
    assert_eq!(figures.len(), all, "{figures:#?}");
}

const FEW: [&str; 4] = ["--tasks", "200", "--runs", "1"];
/// What every store allows, with how many figures each has.
const ON_STORES: [(&str, usize); 6] = [("W1", 2), ("W2", 1), ("W2L", 1), ("W3", 1), ("W5", 1), ("W6", 4)];

#[test]
fn each_workload_on_a_file_leaves_nothing_behind() {
    let (folder, file) = file();
    let names = ON_STORES.map(|(name, _)| name);
    let figures = figures(&[&names[..], &["--store", &file], &FEW].concat());
    are_well_formed(&figures, &ON_STORES, "sqlite");
    assert!(is_empty(folder.path()));
}

#[test]
fn among_other_tasks_the_library_is_beside_itself_without_them() {
    let (folder, file) = file();
    let others = ["--pending", "300", "--finished", "700"];
    let measured = figures(&[&["--store", &file], &others[..], &FEW].concat());
    are_well_formed(&measured, &[("W1", 2), ("W2", 1), ("W3", 1), ("W6", 4)], "sqlite");
    for figure in measured {
        let what = figure["what"].as_str().unwrap();
        assert!(what.ends_with(", among 300 pending, 700 finished"), "{what}");
    }
    assert!(is_empty(folder.path()));
}

#[test]
fn with_a_history_the_library_is_beside_itself_without_one() {
    let (folder, file) = file();
    let measured = figures(&[&["W1", "W2", "--history", "changes", "--store", &file], &FEW[..]].concat());
    are_well_formed(&measured, &[("W1", 2), ("W2", 1)], "sqlite");
    for figure in measured {
        let what = figure["what"].as_str().unwrap();
        assert!(what.ends_with(", with a history of changes"), "{what}");
    }
    assert!(is_empty(folder.path()));
}

#[test]
fn timers_need_no_server() {
    are_well_formed(
        &figures(&[&["w7"], &FEW[..]].concat()),
        &[("W7", 4)],
        "in process",
    );
    // Nothing else does, so that is what is measured where none is named.
    are_well_formed(&figures(&FEW), &[("W7", 4)], "in process");
}

#[test]
fn the_median_of_several_runs_is_a_table_for_people_and_a_page() {
    let (folder, file) = file();
    let page = folder.path().join("page.html");
    let report = ["--report", page.to_str().unwrap()];
    let measured = [
        &["W2", "W1", "W2"],
        &["--store", &file, "--tasks", "100"][..],
        &report,
    ]
    .concat();
    let output = bench(&measured).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), output.stderr),
        (Some(0), Vec::new()),
        "{text}"
    );
    let rows: Vec<_> = text.lines().collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(
        rows[0].starts_with("STORE") && rows[0].contains("RATIO"),
        "{text}"
    );
    assert!(rows[1].contains("W1") && rows[3].contains("W2"), "{text}");
    let page = std::fs::read_to_string(&page).unwrap();
    for expected in [
        "</html>",
        "<svg",
        "polyline",
        "cores",
        "sqlite",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(page.contains(expected), "{expected} is not in {page}");
    }
    for elsewhere in ["http://", "https://", "src=", "href=", "<script", "url("] {
        assert!(!page.contains(elsewhere), "{elsewhere} is in {page}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let (folder, file) = file();
    for (arguments, said) in [
        (
            &["W9"][..],
            "WORKLOAD is \"W9\": allowed are W1, W2, W2L, W3, W4, W5, W6, W7, C1, C2, C3 and all",
        ),
        (
            &["W1"],
            "WORKLOAD is \"W1\": it is allowed with --store, DATABASE_URL or --redis",
        ),
        (&["W7", "W5"], "WORKLOAD is \"W5\": it is allowed with "),
        (
            &["W7", "C2", "--store", &file],
            "WORKLOAD is \"C2\": it is allowed with --rocketmq HOST:PORT",
        ),
        (
            &["W5", "--pending", "1", "--store", &file],
            "WORKLOAD is \"W5\": it is allowed with neither --pending nor --finished nor --history",
        ),
        (
            &["--finished", "1", "--redis", "redis://127.0.0.1:1"],
            "--pending, --finished and --history are allowed with --store or DATABASE_URL",
        ),
        (
            &["--history", "some"],
            "--history is \"some\": allowed are off, changes and all",
        ),
        (
            &["W4", "--store", &file],
            "WORKLOAD is \"W4\": it is allowed with --redis ",
        ),
        (
            &["--tasks", "9"],
            "--tasks is \"9\": allowed are whole numbers from 10 to 1000000",
        ),
        (&["--tasks", "-1"], "--tasks is \"-1\": allowed are whole numbers"),
        (
            &["--tasks", "many"],
            "--tasks is \"many\": allowed are whole numbers",
        ),
        (
            &["--runs", "0"],
            "--runs is \"0\": allowed are whole numbers from 1 to 100",
        ),
        (
            &["--report", ""],
            "--report is \"\": allowed is a file in a folder that is there",
        ),
        (&["--store", ""], "--store is empty"),
        (
            &["--store", "ftp://host/"],
            "--store is not shown, as it may hold a password",
        ),
        (
            &["--store", "/there/is/no/such/folder.db"],
            "--store is not shown, as it may hold a password: allowed is a file in a folder that is there",
        ),
        (&["--bogus"], "\"--bogus\" is not known"),
    ] {
        let output = bench(arguments).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout),
            (Some(2), Vec::new()),
            "{line}"
        );
        assert!(
            line.starts_with(&format!("delayline: {said}")),
            "{arguments:?}: {line}"
        );
    }
    assert!(is_empty(folder.path()));
}

/// Interrupts it, as Ctrl-C does: it ends with status 1, says so, and nothing else.
#[cfg(unix)]
#[track_caller]
fn is_interrupted(running: Child) {
    let id = running.id().to_string();
    let told = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(told.success());
    let output = running.wait_with_output().unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), complained.as_str(), output.stdout),
        (Some(1), "delayline: interrupted\n", Vec::new())
    );
}

#[cfg(unix)]
#[test]
fn who_interrupts_it_leaves_nothing_behind() {
    let (folder, file) = file();
    let mut command = bench(&["W5", "--store", &file]);
    let running = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has begun, and goes on for long.
    while is_empty(folder.path()) {
        std::thread::yield_now();
    }
    is_interrupted(running);
    assert!(is_empty(folder.path()));
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers {
    use super::*;
    use crate::database::Database;

    /// Every workload on a database; gives its URL.
    async fn measures(database: Database, store: &str) -> String {
        let url = database.fresh().await;
        let separator = if url.contains('?') { '&' } else { '?' };
        let plain = match database {
            Database::Postgres => "sslmode=disable",
            Database::MariaDb => "ssl-mode=DISABLED",
        };
        let meant = format!("{url}{separator}{plain}");
        let names = ON_STORES.map(|(name, _)| name);
        let figures = figures(&[&names[..], &["--store", &meant], &FEW].concat());
        are_well_formed(&figures, &ON_STORES, store);
        // It has a server, so it is known what that was asked.
        let idle = figures.iter().find(|figure| figure["workload"] == "W5").unwrap();
        assert!(idle["per_second"].as_f64().unwrap() > 0.0, "{idle}");
        url
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn each_workload_on_postgres_leaves_nothing_behind() {
        let url = measures(Database::Postgres, "postgres").await;
        let pool = sqlx::PgPool::connect(&url).await.unwrap();
        let left = "SELECT count(*) FROM pg_class WHERE relname LIKE '%bench%'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&pool).await.unwrap();
        assert_eq!(left, 0);
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn each_workload_on_mariadb_leaves_nothing_behind() {
        let url = measures(Database::MariaDb, "mysql").await;
        let pool = sqlx::MySqlPool::connect(&url).await.unwrap();
        let left = "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&pool).await.unwrap();
        assert_eq!(left, 0);
    }
}

#[cfg(feature = "redis")]
#[test]
fn rows_and_wake_ups_in_redis_leave_nothing_behind() {
    let server = crate::redis_server::RedisServer::start();
    let ask = |command: &[&str]| -> u64 {
        let mut asked = redis::cmd(command[0]);
        asked.arg(&command[1..]).query(&mut server.admin()).unwrap()
    };
    ask(&["SADD", "somebody", "else"]);
    let on_redis = [&ON_STORES[..], &[("W4", 1)]].concat();
    let names: Vec<_> = on_redis.iter().map(|(name, _)| *name).collect();
    for (option, store) in [("--store", "redis"), ("--redis", "redis-wake-ups")] {
        let figures = figures(&[&names[..], &[option, &server.url()], &FEW].concat());
        are_well_formed(&figures, &on_redis, store);
    }
    assert_eq!(ask(&["DBSIZE"]), 1);
}

#[cfg(not(feature = "rocketmq"))]
#[test]
fn brokers_need_a_build_that_knows_them() {
    assert_eq!(
        refused(&["bench", "C1", "--rocketmq", "127.0.0.1:1"]),
        "--rocketmq is given, but needs the feature rocketmq, which this build does not have"
    );
}

#[cfg(feature = "rocketmq")]
mod brokers {
    use super::*;

    /// What it says to nameservers that it can do nothing with.
    #[track_caller]
    fn says(nameservers: &str, status: i32) -> String {
        let arguments = ["W7", "C1", "C2", "C3", "--rocketmq", nameservers];
        let output = bench(&arguments).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout),
            (Some(status), Vec::new()),
            "{line}"
        );
        line
    }

    #[test]
    fn what_is_no_nameserver_is_refused_by_name() {
        for nameservers in ["", "nonsense", "host:0", "a:1;", "-1"] {
            assert_eq!(
                says(nameservers, 2),
                format!(
                    "delayline: --rocketmq is {nameservers:?}: allowed is HOST:PORT, several separated by semicolons\n"
                )
            );
        }
        // It may be meant for another option, and hold a password.
        let line = says("redis://user:secret@host", 2);
        assert!(!line.contains("secret"), "{line}");
    }

    #[test]
    fn brokers_that_are_not_there_are_a_failure_before_anything_is_measured() {
        // Port 1 is nobody's.
        let line = says("127.0.0.1:1", 1);
        assert!(
            line.starts_with("delayline: ") && line.contains("nameservers") && line.lines().count() == 1,
            "{line}"
        );
    }

    #[cfg(all(unix, feature = "redis"))]
    #[test]
    fn chains_leave_nothing_behind_also_if_they_are_interrupted() {
        // They delete topics.
        let timers = ["--set", "timerWheelEnable=true", "--levels", "1s 2s 1h"];
        let servers = crate::rocketmq::RocketMqServers::start(&timers);
        let redis = crate::redis_server::RedisServer::start();
        let (url, nameserver) = (redis.url(), servers.nameserver.as_str());
        let few = [
            "--rocketmq",
            nameserver,
            "--redis",
            &url,
            "--tasks",
            "50",
            "--runs",
            "1",
        ];
        let measured = figures(&[&["C1", "C2", "C3"], &few[..]].concat());
        are_well_formed(&measured, &[("C1", 4), ("C2", 1), ("C3", 2)], "rocketmq");
        let hops = measured[0]["hops_each"].as_f64().unwrap();
        assert!(hops >= 1.0, "{hops}");
        let of_chains: Vec<_> = measured
            .iter()
            .map(|figure| figure["what"].as_str().unwrap())
            .collect();
        assert_eq!(
            of_chains,
            [
                "at 500/s through 1 hop (2s), late",
                "at 500/s through 2 hops (4s), late",
                "at 500/s through 4 hops (8s), late",
                "at 500/s through 2 hops (8s) and Redis, late",
                "by 64 callers, until on brokers, rows in sqlite",
                "out of one level at once, until run",
                "out of one level at once, until on the next hop",
            ]
        );

        let (folder, file) = file();
        let running = bench(&[&["C1", "--store", &file], &few[..]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Four to be warm and one for the bare client: then it is the library that consumes.
        while !servers.kept(crate::rocketmq::BROKER).contains("_5_") {
            std::thread::yield_now();
        }
        is_interrupted(running);
        assert!(is_empty(folder.path()));
        let keys: u64 = redis::cmd("DBSIZE").query(&mut redis.admin()).unwrap();
        assert_eq!(keys, 0);
        // What it keeps it writes at last when it ends.
        servers.stop(crate::rocketmq::BROKER);
        let kept = servers.kept(crate::rocketmq::BROKER);
        assert!(!kept.contains("delayline_bench_"), "{kept}");
    }
}
