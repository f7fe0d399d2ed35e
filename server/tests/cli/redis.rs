//! `delayline redis`, on servers that are there.

use std::sync::Arc;
use std::time::Duration;

use delayline::backend::{Backend as _, Departure, RedisBackend, Wake};
use delayline::store::{
    Claim, Ending, Guarded, NewRow, Paused, RedisStore, SqliteStore, Step, Store as _, When,
};
use delayline::{Answer, NewTask, Scheduler, TaskId, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::redis_server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);
const DUE: &str = "{delayline:wakes:0}:due";

/// What the tool says when it is run without URLs of the machine's.
fn ended(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tool(&[&["redis"], arguments].concat());
    command.env_remove("DATABASE_URL").env_remove("REDIS_URL");
    let output = command.output().unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), said, complained)
}

/// What it prints when all is well.
#[track_caller]
fn done(arguments: &[&str]) -> String {
    let (status, said, complained) = ended(arguments);
    assert_eq!(
        (status, complained.as_str()),
        (Some(0), ""),
        "{arguments:?}: {said}"
    );
    said
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, command: &[&str]) -> T {
    redis::cmd(command[0])
        .arg(&command[1..])
        .query(&mut server.admin())
        .unwrap()
}

fn departures(count: u64, delay: Duration) -> Vec<Departure> {
    let departure = |number: u64| Departure {
        wake: Wake {
            id: TaskId::from_bytes(u128::from(number).to_be_bytes()),
            kind: "order.cancel".into(),
            version: 1,
        },
        delay,
    };
    (0..count).map(departure).collect()
}

/// The findings of a doctor, each with its severity, and the exit status.
fn findings(server: &RedisServer) -> (Option<i32>, Vec<(String, String)>) {
    let (status, said, _) = ended(&["doctor", "--redis", &server.url(), "--json"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.map(|finding| (word(&finding["severity"]), word(&finding["text"])));
    (status, findings.collect())
}

#[track_caller]
fn has(findings: &[(String, String)], severity: &str, part: &str) {
    let is_there = findings
        .iter()
        .any(|(of, text)| of == severity && text.contains(part));
    assert!(is_there, "{severity} {part:?} is not in {findings:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_nothing_where_all_is_well() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction", "--appendonly", "yes"]);
    let backend = Arc::new(RedisBackend::new(&server.url()).unwrap());
    backend.send(&departures(1_000, HOUR)).await.unwrap();
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    while ask::<u64>(&server, &["EXISTS", "{delayline:wakes}:members"]) == 0 {
        tokio::task::yield_now().await;
    }
    let said = done(&["doctor", "--redis", &server.url()]);
    assert!(
        said.contains("shards: 1; receivers: 1; wake-ups: 1000 held, 0 taken, 0 set aside"),
        "{said}"
    );
    assert!(said.contains(&format!("{DUE}: 1000 members")), "{said}");
    assert_eq!(findings(&server), (Some(0), vec![]));
    receiving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_looks_at_rows_and_changes_nothing() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--enable-debug-command", "yes"]);
    let scheduler = Scheduler::new(RedisStore::new(&server.url()).unwrap());
    let tasks = (0..30).map(|n| NewTask::new(["a", "b", "c"][n % 3], &n).after(HOUR));
    let scheduled = scheduler.schedule_all(tasks).await.unwrap();
    assert!(scheduler.cancel(scheduled[0].task().id).await.unwrap().is_done());
    scheduler.close().await.unwrap();
    let before: String = ask(&server, &["DEBUG", "DIGEST"]);
    let said = done(&["doctor", "--redis", &server.url()]);
    let counts = "tasks: 1 shards; 29 scheduled, 0 running, 0 done, 0 dead, 1 cancelled";
    assert!(said.contains(counts), "{said}");
    assert_eq!(findings(&server), (Some(0), vec![]));
    assert_eq!(ask::<String>(&server, &["DEBUG", "DIGEST"]), before);

    let (_, said, _) = ended(&["doctor", "--redis", &server.url(), "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["rows"]["scheduled"], 29);
    let (_, said, _) = ended(&["doctor", "--redis", &server.url(), "--prefix", "other", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["rows"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_what_would_lose_or_delay_rows() {
    let server = RedisServer::start_with(&["--maxmemory", "100mb"]);
    let scheduler = Scheduler::new(RedisStore::new(&server.url()).unwrap());
    let task = NewTask::new("a", &()).after(HOUR);
    scheduler.schedule(task).await.unwrap();
    scheduler.close().await.unwrap();
    let store = RedisStore::new(&server.url()).unwrap();
    let row = |n, kind: &str| NewRow {
        id: TaskId::from_bytes([n; 16]),
        kind: kind.into(),
        key: None,
        payload: Vec::new(),
        headers: Default::default(),
        due: When::At(Timestamp::from_millis(1_000)),
        overdue_after: HOUR,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    };
    let rows = vec![row(1, "a"), row(2, "b"), row(3, "c")];
    assert!(store.insert(rows).await.unwrap().found.iter().all(Result::is_ok));
    let claim = |kind: &str, lease| Claim {
        owner: "tester".into(),
        lease,
        room: [(kind.into(), 1)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    };
    store.ready(&claim("b", Duration::ZERO)).await.unwrap();
    let claimed = store.ready(&claim("c", HOUR)).await.unwrap().found.remove(0);
    let ending = Ending::Dead {
        error: "gave up".to_owned(),
        give_back: false,
    };
    let end = Step::end(claimed.id, claimed.version, ending);
    assert_eq!(store.advance(&[end]).await.unwrap(), [Guarded::Done]);
    // A store gives no new task to a server that is set so.
    let _: String = ask(&server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // A lease may have ended for a while before that is a problem.
    let (status, findings) = loop {
        let (status, findings) = findings(&server);
        if findings.iter().any(|(_, text)| text.contains("lease has ended")) {
            break (status, findings);
        }
    };
    assert_eq!(status, Some(1));
    for part in [
        "maxmemory-policy is allkeys-lru, so it removes tasks",
        "nothing on disk and has no replica; after a restart all tasks are lost",
        "the first task is due for",
        "a task is running whose lease has ended",
    ] {
        has(&findings, "problem", part);
    }
    has(&findings, "note", "1 tasks are dead");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_takes_a_pause_for_no_problem_until_it_is_over() {
    let server = RedisServer::start_with(&["--appendonly", "yes"]);
    let store = RedisStore::new(&server.url()).unwrap();
    let scheduler = Scheduler::new(store.clone());
    let due = NewTask::new("a", &()).at(Timestamp::from_millis(1_000));
    scheduler.schedule(due).await.unwrap();
    scheduler.pause("a", None, "a move").await.unwrap();
    let said = done(&["doctor", "--redis", &server.url()]);
    assert!(said.contains("1 scheduled, 0 running"), "{said}");
    assert_eq!(findings(&server), (Some(0), vec![]));
    assert!(scheduler.resume("a").await.unwrap());
    has(&findings(&server).1, "problem", "the first task is due for");
    let over = NewRow {
        id: TaskId::from_bytes([1; 16]),
        kind: Paused::KIND.into(),
        key: Some("a".into()),
        payload: json!({"until": 1_000, "reason": ""}).to_string().into_bytes(),
        headers: Default::default(),
        due: When::At(Timestamp::MAX),
        overdue_after: Duration::MAX,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    };
    assert!(store.insert(vec![over]).await.unwrap().found[0].is_ok());
    has(&findings(&server).1, "problem", "the first task is due for");
}

#[test]
fn a_doctor_leaves_an_empty_server_empty() {
    let server = RedisServer::start();
    let said = done(&["doctor", "--redis", &server.url()]);
    assert!(said.contains("shards: 0; receivers: 0"), "{said}");
    assert_eq!(ask::<u64>(&server, &["DBSIZE"]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_what_would_lose_or_delay_tasks() {
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let backend = RedisBackend::new(&server.url()).unwrap();
    backend.send(&departures(10, Duration::ZERO)).await.unwrap();
    // Due, taken, and no wake-up: all long ago.
    for (key, member) in [(DUE, "foreign"), ("{delayline:wakes:0}:leased", "taken")] {
        let () = ask(&server, &["ZADD", key, "1000", member]);
    }
    let () = ask(&server, &["ZADD", "{delayline:wakes:0}:foreign", "1000", "aside"]);

    let (status, findings) = findings(&server);
    assert_eq!(status, Some(1));
    for part in [
        "maxmemory-policy is allkeys-lru",
        "no process receives, so none of the 1 shards is watched",
        "its first wake-up is due for",
        "1 wake-ups were taken by a process whose lease has ended",
    ] {
        has(&findings, "problem", part);
    }
    has(&findings, "note", "1 members were no wake-ups");
    has(&findings, "note", "nothing on disk and has no replica");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_compares_clocks_where_a_database_is_named() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tasks.db");
    SqliteStore::open(&file).await.unwrap();
    let said = done(&[
        "doctor",
        "--redis",
        &server.url(),
        "--store",
        file.to_str().unwrap(),
        "--json",
    ]);
    let report: Value = serde_json::from_str(&said).unwrap();
    // Both go by this machine's.
    let ahead = report["clocks_ahead_ms"][0].as_i64().unwrap();
    assert!(ahead.abs() < 60_000, "{ahead}");
    assert_eq!(report["nodes"][0]["is_master"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_sends_a_wake_up_for_every_scheduled_task() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tasks.db");
    let scheduler = Scheduler::new(SqliteStore::open(&file).await.unwrap());
    let tasks = (0..1_200).map(|n| NewTask::new(["a", "b", "c"][n % 3], &n).after(HOUR));
    let scheduled = scheduler.schedule_all(tasks).await.unwrap();
    let cancelled = scheduler.cancel(scheduled[0].task().id).await.unwrap();
    assert!(matches!(cancelled, Answer::Done(_)));
    let file = file.to_str().unwrap();
    let said = done(&["rebuild", "--redis", &server.url(), "--store", file]);
    assert_eq!(said, "1199 wake-ups were sent, of 3 kinds\n");
    assert_eq!(ask::<u64>(&server, &["ZCARD", DUE]), 1_199);
    // Once more is not twice.
    done(&["rebuild", "--redis", &server.url(), "--store", file]);
    assert_eq!(ask::<u64>(&server, &["ZCARD", DUE]), 1_199);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_under_a_new_prefix_has_another_number_of_shards() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tasks.db");
    let scheduler = Scheduler::new(SqliteStore::open(&file).await.unwrap());
    let tasks = (0..300).map(|n| NewTask::new("a", &n).after(HOUR));
    scheduler.schedule_all(tasks).await.unwrap();
    let before = RedisBackend::new(&server.url()).unwrap();
    before.send(&departures(1, HOUR)).await.unwrap();
    let url = server.url();
    let place = ["rebuild", "--redis", &url, "--store", file.to_str().unwrap()];
    let (status, _, line) = ended(&[&place[..], &["--shards", "4"]].concat());
    assert_eq!(status, Some(2), "{line}");
    assert!(
        line.contains("--shards is \"4\": under this prefix there are 1,"),
        "{line}"
    );

    let said = done(&[&place[..], &["--shards", "4", "--prefix", "next"]].concat());
    assert_eq!(said, "300 wake-ups were sent, of 1 kinds\n");
    let shards = (0..4).map(|shard| ask::<u64>(&server, &["ZCARD", &format!("{{next:wakes:{shard}}}:due")]));
    let shards: Vec<_> = shards.collect();
    assert_eq!(shards.iter().sum::<u64>(), 300);
    assert!(shards.iter().all(|held| *held > 0), "{shards:?}");
    // All of it is found by any backend that uses that prefix from then on.
    let next = RedisBackend::builder(&url).prefix("next").build().unwrap();
    assert_eq!(next.checkup().await.unwrap().shards, 4);
}

#[test]
fn what_cannot_be_used_is_refused_in_a_line_without_secrets() {
    let cases: &[(&[&str], i32, &str)] = &[
        (&["doctor"], 2, "--redis is missing, and REDIS_URL is not set"),
        (&["doctor", "--redis", ""], 2, "--redis is empty"),
        (&["doctor", "--redis", "http://:s3cret@host"], 2, "--redis is"),
        (
            &["doctor", "--redis", "redis://:s3cret@127.0.0.1:1"],
            1,
            "127.0.0.1:1: backend redis: ",
        ),
        (
            &["doctor", "--redis", "redis://host", "--prefix", "{"],
            2,
            "--prefix is \"{\": allowed are 1 to 100",
        ),
        (
            &["rebuild", "--redis", "redis://127.0.0.1:1", "--shards", "0"],
            2,
            "--shards is \"0\": allowed are whole numbers from 1 to 1024",
        ),
        (
            &["rebuild", "--redis", "redis://127.0.0.1:1", "--shards", "many"],
            2,
            "--shards",
        ),
        (
            &["rebuild", "--redis", "redis://127.0.0.1:1"],
            2,
            "--store is missing, and DATABASE_URL is not set",
        ),
        (
            &[
                "rebuild",
                "--redis",
                "redis://127.0.0.1:1",
                "--store",
                "http://:s3cret@host",
            ],
            2,
            "--store is not shown",
        ),
        (
            &[
                "rebuild",
                "--redis",
                "redis://127.0.0.1:1",
                "--store",
                "/no/such/file",
            ],
            2,
            "--store is not shown",
        ),
        (&["heal"], 2, "doctor, rebuild"),
    ];
    for (arguments, status, part) in cases {
        let (ended, said, line) = ended(arguments);
        assert_eq!(
            (ended, said.as_str()),
            (Some(*status), ""),
            "{arguments:?}: {line}"
        );
        assert!(line.contains(part), "{arguments:?}: {line}");
        assert!(!line.contains("s3cret"), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
