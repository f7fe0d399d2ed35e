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
            assert_eq!(figure["store"], store);
            assert!(
                figure["what"].is_string() && figure["aim"].is_string(),
                "{figure}"
            );
            for fault in ["lost", "twice", "early"] {
                assert_eq!(figure[fault], 0, "{figure}");
            }
            for number in [&figure["ratio"], &figure["seconds"]] {
                assert!(number.as_f64().unwrap() > 0.0, "{figure}");
            }
            match *workload {
                "W1" | "W2" | "W6" => {
                    assert!(figure["limit"]["per_second"].as_f64().unwrap() > 0.0, "{figure}");
                }
                _ => assert!(figure["limit"]["late_ms"]["p99"].is_f64(), "{figure}"),
            }
        }
    }
    let all: usize = workloads.iter().map(|(_, count)| count).sum();
    assert_eq!(figures.len(), all, "{figures:#?}");
}

const FEW: [&str; 4] = ["--tasks", "200", "--runs", "1"];
/// What every store allows, with how many figures each has.
const ON_STORES: [(&str, usize); 4] = [("W1", 2), ("W2", 1), ("W3", 1), ("W6", 4)];

#[test]
fn each_workload_on_a_file_leaves_nothing_behind() {
    let (folder, file) = file();
    let figures = figures(&[&["--store", &file], &FEW[..]].concat());
    are_well_formed(&figures, &ON_STORES, "sqlite");
    assert!(is_empty(folder.path()));
}

#[test]
fn the_median_of_several_runs_is_a_table_for_people() {
    let (folder, file) = file();
    let output = bench(&["w2", "W1", "W2", "--store", &file, "--tasks", "100"])
        .output()
        .unwrap();
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
    assert!(is_empty(folder.path()));
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let (folder, file) = file();
    for (arguments, said) in [
        (&["W9"][..], "WORKLOAD is \"W9\": allowed are W1, W2, W3, W6, C1"),
        (&["W1"], "--store is missing, and DATABASE_URL is not set"),
        (
            &["C1", "--store", &file],
            "WORKLOAD is \"C1\": it is allowed with --nameserver HOST:PORT",
        ),
        (
            &["--tasks", "9"],
            "--tasks is \"9\": allowed are whole numbers from 10 to 100000",
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
        (&["--store", ""], "--store is empty"),
        (
            &["--store", "ftp://host/"],
            "--store is not shown, as it may hold a password",
        ),
        (
            &["--store", "/there/is/no/such/folder.db"],
            "--store is \"/there/is/no/such/folder.db\": allowed is a file in a folder that is there",
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
fn an_interrupted_run_leaves_nothing_behind() {
    let (folder, file) = file();
    let mut command = bench(&["W1", "--store", &file, "--runs", "100"]);
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
        let figures = figures(&[&["--store", &meant], &FEW[..]].concat());
        are_well_formed(&figures, &ON_STORES, store);
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
fn each_workload_on_redis_leaves_nothing_behind() {
    let server = crate::redis_server::RedisServer::start();
    let ask = |command: &[&str]| -> u64 {
        let mut asked = redis::cmd(command[0]);
        asked.arg(&command[1..]).query(&mut server.admin()).unwrap()
    };
    ask(&["SADD", "another", "one"]);
    let figures = figures(&[&["--store", &server.url()], &FEW[..]].concat());
    are_well_formed(&figures, &ON_STORES, "redis");
    assert_eq!(ask(&["DBSIZE"]), 1);
}

#[cfg(not(feature = "rocketmq"))]
#[test]
fn brokers_need_a_build_that_knows_them() {
    assert_eq!(
        refused(&["bench", "C1", "--nameserver", "127.0.0.1:1"]),
        "--nameserver is given, but needs the feature rocketmq, which this build does not have"
    );
}

#[cfg(feature = "rocketmq")]
mod brokers {
    use super::*;

    /// What it says to nameservers that it can do nothing with.
    #[track_caller]
    fn says(nameservers: &str, status: i32) -> String {
        let (folder, file) = file();
        let arguments = ["W1", "C1", "--store", &file, "--nameserver", nameservers];
        let output = bench(&arguments).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout),
            (Some(status), Vec::new()),
            "{line}"
        );
        assert!(is_empty(folder.path()));
        line
    }

    #[test]
    fn what_is_no_nameserver_is_refused_by_name() {
        for nameservers in ["", "nonsense", "host:0", "a:1;", "-1"] {
            assert_eq!(
                says(nameservers, 2),
                format!(
                    "delayline: --nameserver is {nameservers:?}: allowed is HOST:PORT, several separated by semicolons\n"
                )
            );
        }
        // It may be meant for another option, and hold a password.
        let line = says("redis://user:secret@host", 2);
        assert!(!line.contains("secret"), "{line}");
    }

    #[test]
    fn brokers_that_are_not_there_are_a_failure_before_anything_is_measured() {
        // Nothing listens on port 1.
        let line = says("127.0.0.1:1", 1);
        assert!(
            line.starts_with("delayline: ") && line.contains("nameservers") && line.lines().count() == 1,
            "{line}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn chains_leave_nothing_behind_also_if_they_are_interrupted() {
        // They delete topics.
        let timers = ["--set", "timerWheelEnable=true", "--levels", "1s 2s 1h"];
        let servers = crate::rocketmq::RocketMqServers::start(&timers);
        let (folder, file) = file();
        let few = [
            "C1",
            "--nameserver",
            servers.nameserver.as_str(),
            "--store",
            &file,
            "--tasks",
            "50",
            "--runs",
            "1",
        ];
        let measured = figures(&[&few[..], &["--after", "4s"]].concat());
        are_well_formed(&measured, &[("C1", 1)], "rocketmq");
        // Two levels make up four seconds, and brokers may give a message twice. Where the machine is late, the rest of a
        // chain goes without them.
        let hops = measured[0]["hops_each"].as_f64().unwrap();
        assert!(hops > 0.0 && hops <= 4.0, "{hops}");
        assert!(is_empty(folder.path()));

        let running = bench(&[&few[..], &["--after", "2m"]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The limit comes first: there is a file when it is the library that consumes.
        while is_empty(folder.path()) {
            std::thread::yield_now();
        }
        is_interrupted(running);
        assert!(is_empty(folder.path()));
        // What it keeps it writes at last when it ends.
        servers.stop(crate::rocketmq::BROKER);
        let kept = servers.kept(crate::rocketmq::BROKER);
        assert!(!kept.contains("delayline_bench_"), "{kept}");
    }
}
