//! `delayline tasks`, `delayline kinds` and `delayline forecast`, over a file.

use std::path::Path;
use std::time::Duration;

use delayline::store::SqliteStore;
use delayline::{NewTask, Outcome, Scheduler, State, Worker};
use tempfile::TempDir;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Thirty orders that are due an hour from now and later, by a minute each.
async fn shop() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let scheduler = Scheduler::new(SqliteStore::open(&file).await.unwrap());
    let order = |number: u32| {
        let key = format!("{}-{number:02}", if number < 10 { "book" } else { "toy" });
        let task = NewTask::new("order.cancel", &number).key(key);
        task.after(HOUR + number * Duration::from_secs(60))
    };
    scheduler.schedule_all((0..30).map(order)).await.unwrap();
    scheduler.close().await.unwrap();
    (folder, file.to_str().unwrap().to_owned())
}

/// Lets the one task that is due die.
async fn one_dies(file: &Path) {
    let scheduler = Scheduler::new(SqliteStore::open(file).await.unwrap());
    let worker = Worker::new(&scheduler).handle("order.cancel", async |number: u32, _| {
        Ok(Outcome::Discard(format!(
            "no stock of {}\n\u{1b}[31m",
            number % 2
        )))
    });
    let ended = async {
        loop {
            let page = delayline::store::Page::new("order.cancel", State::Dead);
            if scheduler.list(&page).await.unwrap().len() == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    worker.run_until(ended).await.unwrap();
}

fn done(file: &str, arguments: &[&str]) -> String {
    printed(&[arguments, &["--store", file]].concat())
}

pub(crate) fn answer(file: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(file, &[arguments, &["--json"]].concat())).unwrap()
}

#[tokio::test]
async fn one_task_is_shown_moved_and_cancelled() {
    let (_folder, file) = shop().await;
    let order = ["order.cancel", "book-03"];
    let shown = answer(&file, &[&["tasks", "show"], &order[..]].concat());
    assert_eq!(
        (&shown["payload"], &shown["state"]),
        (&json!(3), &json!("scheduled"))
    );
    let text = done(&file, &["tasks", "show", "--id", shown["id"].as_str().unwrap()]);
    assert!(
        text.contains("key           book-03\n") && !text.contains("payload"),
        "{text}"
    );

    let moved = [
        &["tasks", "reschedule"],
        &order[..],
        &["--at", "2099-01-01T00:00:00Z"],
    ]
    .concat();
    assert_eq!(
        done(&file, &moved),
        "done: it is scheduled, due 2099-01-01T00:00:00Z\n"
    );
    let shifted = answer(
        &file,
        &[&["tasks", "shift"], &order[..], &["--by", "-2h"]].concat(),
    );
    assert_eq!(
        (&shifted["answer"], &shifted["task"]["due_at"]),
        (&json!("done"), &json!("2098-12-31T22:00:00Z"))
    );
    assert_eq!(
        answer(&file, &[&["tasks", "cancel"], &order[..]].concat())["answer"],
        "done"
    );
    let again = output(&[&["tasks", "cancel"], &order[..], &["--store", &file]].concat());
    let [said, complained] = [again.stdout, again.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(
        (again.status.code(), said.as_str(), complained.as_str()),
        (
            Some(1),
            "",
            "delayline: nothing was changed: it is cancelled, and cancel is for scheduled tasks\n"
        )
    );
}

#[tokio::test]
async fn a_task_that_has_ended_is_run_again() {
    let (_folder, file) = shop().await;
    let order = ["order.cancel", "book-03"];
    let again =
        |more: &[&str]| output(&[&["tasks", "rerun"], &order[..], more, &["--store", &file]].concat());
    let waits = again(&[]);
    let [said, complained] = [waits.stdout, waits.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(
        (waits.status.code(), said.as_str(), complained.as_str()),
        (
            Some(1),
            "",
            "delayline: nothing was changed: it is scheduled, and rerun is for ended tasks\n"
        )
    );
    let first = answer(&file, &[&["tasks", "cancel"], &order[..]].concat());
    let new: Value = serde_json::from_slice(&again(&["--json", "--reason", "paid late"]).stdout).unwrap();
    assert_eq!(new["answer"], "new");
    let shown = answer(&file, &[&["tasks", "explain"], &order[..]].concat());
    assert_eq!((&shown["id"], &shown["payload"]), (&new["task"]["id"], &json!(3)));
    let why = format!("again after {}: paid late", first["task"]["id"].as_str().unwrap());
    assert_eq!(shown["history"][0]["reason"], why);
}

#[tokio::test]
async fn a_task_is_explained() {
    let (_folder, file) = shop().await;
    let order = ["order.cancel", "book-03"];
    let long = "x".repeat(501);
    let refused = output(
        &[
            &["tasks", "cancel"],
            &order[..],
            &["--store", &file, "--reason", &long],
        ]
        .concat(),
    );
    assert_eq!(refused.status.code(), Some(2));
    let cancel = [
        &["tasks", "cancel"],
        &order[..],
        &["--reason", "paid\n\u{1b}[31mby phone"],
    ]
    .concat();
    assert!(done(&file, &cancel).starts_with("done: "));
    let text = done(&file, &[&["tasks", "explain"], &order[..]].concat());
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0].starts_with("Cancelled at ") && lines[0].ends_with(" by cli (paid  [31mby phone)."),
        "{text}"
    );
    assert!(lines[2].starts_with("AT "), "{text}");
    assert!(lines[3].contains("  cancelled  cli  "), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let json = answer(&file, &[&["tasks", "explain"], &order[..]].concat());
    assert_eq!(
        (&json["history"][0]["reason"], &json["state"]),
        (&json!("paid\n\u{1b}[31mby phone"), &json!("cancelled"))
    );
    let id = json["id"].as_str().unwrap();
    assert_eq!(done(&file, &["tasks", "explain", "--id", id]), text);
    let other = done(&file, &["tasks", "explain", "order.cancel", "book-04"]);
    assert!(other.contains("Nothing was noted"), "{other}");
}

#[tokio::test]
async fn what_could_not_be_changed_with_all_that_match_is_told_with_the_reason() {
    let (_folder, file) = shop().await;
    let rows = sqlx::SqlitePool::connect(&file).await.unwrap();
    let spoil = "UPDATE delayline_tasks SET headers = 'x' WHERE id = \
                 (SELECT id FROM delayline_tasks WHERE kind = 'order.cancel' LIMIT 1)";
    sqlx::raw_sql(spoil).execute(&rows).await.unwrap();
    let cancelled = output(&["tasks", "cancel", "order.cancel", "--all", "--store", &file]);
    assert_eq!(cancelled.status.code(), Some(1));
    let [said, complained] = [&cancelled.stdout, &cancelled.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(said, "30 match\n29 were changed\n");
    for part in [
        "the first task=",
        "column headers",
        "1 could not be changed, or it is not known",
    ] {
        assert!(complained.contains(part), "{part}: {complained}");
    }
}

#[tokio::test]
async fn all_that_match_are_changed_and_no_others() {
    let (_folder, file) = shop().await;
    let all = |verb: &'static str, rest: &[&'static str]| {
        let command = [&["tasks", verb, "order.cancel", "--all"][..], rest].concat();
        answer(&file, &command)
    };
    let toys = &["--key-prefix", "toy-"];
    let dry = all("cancel", &[&toys[..], &["--dry-run"]].concat());
    assert_eq!(dry, json!({"matched": 20, "answers": null}));
    let scheduled = || {
        done(&file, &["tasks", "list", "order.cancel", "--json"])
            .lines()
            .count()
    };
    assert_eq!(scheduled(), 30);
    let answers = |count| json!({"done": count, "too_late": 0, "finished": 0, "conflict": 0, "not_found": 0, "failed": 0});
    assert_eq!(
        all("cancel", toys),
        json!({"matched": 20, "answers": answers(20)})
    );
    assert_eq!(scheduled(), 10);
    // Each once, though some land where others are.
    let before: Vec<Value> = dues(&file, "order.cancel");
    assert_eq!(all("shift", &["--by", "+1m"])["answers"], answers(10));
    assert_eq!(dues(&file, "order.cancel")[..9], before[1..]);
    assert_eq!(
        all("reschedule", &["--at", "2099-01-01T00:00:00Z"])["answers"],
        answers(10)
    );
    let text = done(
        &file,
        &[
            "tasks",
            "run",
            "order.cancel",
            "--all",
            "--due-before",
            "2098-01-01T00:00:00Z",
        ],
    );
    assert_eq!(text, "0 match\n");
    let text = done(
        &file,
        &[
            "tasks",
            "run",
            "order.cancel",
            "--all",
            "--due-after",
            "2098-01-01T00:00:00Z",
        ],
    );
    assert_eq!(text, "10 match\n10 were changed\n");
    let kinds = done(&file, &["kinds", "list"]);
    assert_eq!(kinds, "order.cancel  scheduled, cancelled\n");
}

/// So many tasks of the kind `k`, due an hour from now and later, by a second each.
pub(crate) async fn many(tasks: u32) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.db");
    let scheduler = Scheduler::new(SqliteStore::open(&file).await.unwrap());
    let many =
        (0..tasks).map(|number| NewTask::new("k", &number).after(HOUR + number * Duration::from_secs(1)));
    scheduler.schedule_all(many).await.unwrap();
    scheduler.close().await.unwrap();
    (folder, file.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_change_that_fails_midway_says_how_many_were_changed() {
    let (_folder, file) = &many(2_105).await;
    let rows = sqlx::SqlitePool::connect(file).await.unwrap();
    let spoil = "UPDATE delayline_tasks SET headers = 'x' WHERE id IN \
                 (SELECT id FROM delayline_tasks ORDER BY due_at LIMIT -1 OFFSET 1500)";
    sqlx::raw_sql(spoil).execute(&rows).await.unwrap();
    let cancelled = output(&["tasks", "cancel", "k", "--all", "--yes", "--store", file]);
    let said = String::from_utf8(cancelled.stderr).unwrap();
    assert_eq!(
        (cancelled.status.code(), &*cancelled.stdout),
        (Some(1), &b""[..]),
        "{said}"
    );
    assert!(
        said.contains("the change has failed with 1500 tasks changed: ") && said.contains("column headers"),
        "{said}"
    );
}

#[tokio::test]
async fn more_than_a_thousand_are_changed_part_by_part() {
    let (_folder, file) = &many(2_105).await;
    let answers = |count| json!({"done": count, "too_late": 0, "finished": 0, "conflict": 0, "not_found": 0, "failed": 0});
    // Beside it is said that there are more.
    let first = || {
        let list = output(&["tasks", "list", "k", "--limit", "1", "--json", "--store", file]);
        serde_json::from_slice::<Value>(&list.stdout).unwrap()["due_at"].take()
    };
    let before = first();
    // What is moved would match again, and is moved once.
    let shifted = answer(file, &["tasks", "shift", "k", "--all", "--by", "+24h", "--yes"]);
    assert_eq!(shifted, json!({"matched": 2_105, "answers": answers(2_105)}));
    let moved: delayline::Timestamp = before.as_str().unwrap().parse().unwrap();
    assert_eq!(first(), moved.after(24 * HOUR).to_string());
    let cancelled = answer(file, &["tasks", "cancel", "k", "--all", "--yes"]);
    assert_eq!(cancelled, json!({"matched": 2_105, "answers": answers(2_105)}));
    assert_eq!(answer(file, &["tasks", "cancel", "k", "--all"])["matched"], 0);
}

fn dues(file: &str, kind: &str) -> Vec<Value> {
    let lines = done(file, &["tasks", "list", kind, "--json"]);
    let tasks = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    tasks.map(|mut task| task["due_at"].take()).collect()
}

#[tokio::test]
async fn the_dead_of_one_error_are_found_redriven_and_dismissed() {
    let (_folder, file) = shop().await;
    let run = answer(&file, &["tasks", "run", "order.cancel", "book-01"]);
    assert_eq!(run["answer"], "done");
    one_dies(Path::new(&file)).await;
    let list = done(&file, &["tasks", "list", "order.cancel", "--state", "dead"]);
    let (header, row) = list.split_once('\n').unwrap();
    assert!(
        header.starts_with("DUE") && row.contains("  book-01  1        "),
        "{list}"
    );
    assert!(row.trim_end().ends_with("no stock of 1  [31m"), "{row:?}");
    let redrive = |error| {
        answer(
            &file,
            &["tasks", "redrive", "order.cancel", "--all", "--error", error],
        )
    };
    assert_eq!(redrive("no stock of 0")["matched"], 0);
    assert_eq!(redrive("no stock of 1")["answers"]["done"], 1);

    let [redrive, dismiss] = ["redrive", "dismiss"].map(|verb| {
        let id = run["task"]["id"].as_str().unwrap();
        ["tasks", verb, "--id", id]
    });
    let refused = |arguments: &[&str]| {
        let output = output(&[arguments, &["--store", &file, "--json"]].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), &answer["answer"]),
            (Some(1), &json!("conflict"))
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&dismiss);
    assert!(
        said.contains("it is scheduled, and dismiss is for dead tasks"),
        "{said}"
    );
    one_dies(Path::new(&file)).await;
    let scheduler = Scheduler::new(SqliteStore::open(&file).await.unwrap());
    let task = NewTask::new("order.cancel", &1).key("book-01").after(HOUR);
    let other = scheduler.schedule(task).await.unwrap().task().id;
    scheduler.close().await.unwrap();
    let said = refused(&redrive);
    assert!(
        said.ends_with(&format!(": {other}, which is scheduled, has its key\n")),
        "{said}"
    );
    let all = ["tasks", "dismiss", "order.cancel", "--all", "--dry-run"];
    assert_eq!(answer(&file, &all)["matched"], 1);
    let dismissed = answer(&file, &[&dismiss[..], &["--reason", "sold out"]].concat());
    assert_eq!(
        (&dismissed["answer"], &dismissed["task"]["state"]),
        (&json!("done"), &json!("cancelled"))
    );
}

#[tokio::test]
async fn the_tasks_of_the_server_itself_are_left_alone() {
    let (_folder, file) = shop().await;
    let told = done(&file, &["kinds", "pause", "order.cancel", "--reason", "a move"]);
    assert!(told.contains(" by cli: a move"), "{told}");
    let mark = answer(&file, &["tasks", "show", "delayline.paused", "order.cancel"]);
    for arguments in [
        &["tasks", "cancel", "delayline.paused", "order.cancel"][..],
        &["tasks", "cancel", "--id", mark["id"].as_str().unwrap()],
        &["tasks", "run", "delayline.paused", "--all"],
        &["tasks", "dismiss", "delayline.paused", "--all"],
        &["kinds", "pause", "delayline.rejected"],
    ] {
        let arguments = [arguments, &["--store", &file]].concat();
        let said = refused(&arguments);
        assert!(said.contains("do not begin with delayline."), "{said}");
    }
    let still = answer(&file, &["tasks", "show", "delayline.paused", "order.cancel"]);
    assert_eq!(still["version"], mark["version"]);
    assert_eq!(done(&file, &["kinds", "resume", "order.cancel"]), "resumed\n");
}

#[tokio::test]
async fn what_is_coming_is_counted() {
    let (_folder, file) = shop().await;
    let store = SqliteStore::open(&file).await.unwrap();
    let scheduler = Scheduler::new(store);
    scheduler.schedule(NewTask::new("a", &1)).await.unwrap();
    scheduler.close().await.unwrap();
    assert_eq!(
        done(&file, &["forecast"]),
        "KIND          5s  1m  5m  15m  1h  4h  8h  24h\n\
         a             1   1   1   1    1   1   1   1\n\
         order.cancel  0   0   0   0    1   30  30  30\n"
    );
    assert_eq!(
        done(&file, &["forecast", "none", "a"]),
        "KIND  5s  1m  5m  15m  1h  4h  8h  24h\n\
         none  0   0   0   0    0   0   0   0\n\
         a     1   1   1   1    1   1   1   1\n"
    );
    let order = answer(&file, &["forecast", "order.cancel"]);
    assert_eq!(
        (&order["kind"], &order["more"]),
        (&json!("order.cancel"), &json!(false))
    );
    assert_eq!(order["due"][5], json!({"within": "4h", "tasks": 30}));
    assert_eq!(done(&file, &["forecast", "--json"]).lines().count(), 2);
    let line = refused(&["forecast", "", "--store", &file]);
    assert!(line.contains("kind is \"\""), "{line}");
}
