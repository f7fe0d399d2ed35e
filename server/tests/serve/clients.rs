//! The shops and workers of `examples/clients`, which know nothing but HTTP.

use std::process::Command;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::programs::{Language, Program, examples};
use crate::server::Server;

/// What a program prints that ends by itself.
async fn printed(mut command: Command) -> String {
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What a shop prints that has a server of its own.
async fn shop(language: Language) -> String {
    let server = Server::start();
    let mut command = language.command("shop");
    command.arg(&server.url);
    printed(command).await
}

#[tokio::test]
async fn a_shop_in_python_schedules_moves_and_cancels() {
    let expected =
        "new scheduled\nexisting\ndone later\ndone\nfinished\ncancelled\nnot_found None\nrefused: 400\n";
    assert_eq!(shop(Language::Python).await, expected);
}

#[tokio::test]
async fn a_shop_in_go_schedules_moves_and_cancels() {
    let expected =
        "new scheduled\nnew\nexisting\ndone 10m0s\ndone\nfinished cancelled\nnot_found\nrefused: 400\n";
    assert_eq!(shop(Language::go().await).await, expected);
}

#[tokio::test]
async fn a_shop_in_java_schedules_moves_cancels_and_works() {
    let expected = "201 new\n200 existing\n200 done\n200 done\n409 finished\n404 not_found\nbuilt sales\n200 done\n409 lost\n";
    assert_eq!(shop(Language::Java).await, expected);
}

const REPORT: &str = "/v1/tasks/report.build/1";

/// Schedules a report for now.
async fn schedule(server: &Server, payload: Value) {
    let task = json!({"after": "0s", "payload": payload});
    server.put(REPORT, task).await.is(201, "new");
}

/// The report, once a worker has claimed it for the `times`th time, all earlier claims having been lost.
async fn claimed(server: &Server, times: u64) -> Value {
    let is_claimed = |task: &Value| task["state"] == "running" && task["stalls"] == times - 1;
    server.until(REPORT, is_claimed).await
}

/// It builds what is due, and tries again what failed, as often as it may.
async fn works(language: Language) {
    let server = Server::start();
    let mut worker = Program::worker(&language, &server, "30");
    let report = json!({"after": "200ms", "payload": {"name": "sales"}});
    server.put(REPORT, report).await.is(201, "new");
    assert_eq!(worker.says().await, "built sales");
    let bad = json!({"after": "0s", "payload": {"impossible": true}, "max_attempts": 1});
    server.put("/v1/tasks/report.build/2", bad).await.is(201, "new");
    let dead = server
        .until("/v1/tasks/report.build/2", |task| task["state"] == "dead")
        .await;
    assert_eq!(dead["last_error"], "such a report cannot be built");
    server.until(REPORT, |task| task["state"] == "done").await;
}

#[tokio::test]
async fn a_worker_in_python_builds_what_is_due() {
    works(Language::Python).await;
}

#[tokio::test]
async fn a_worker_in_go_builds_what_is_due() {
    works(Language::go().await).await;
}

/// What takes longer than a lease stays its worker's, which extends it.
async fn keeps(language: Language) {
    let server = Server::start();
    schedule(&server, json!({"name": "long", "seconds": 14})).await;
    // Its third leaves room for a machine that stands still for seconds.
    let mut worker = Program::worker(&language, &server, "10");
    claimed(&server, 1).await;
    let _other = Program::worker(&Language::Python, &server, "30");
    assert_eq!(worker.says().await, "built long");
    let done = server.until(REPORT, |task| task["state"] == "done").await;
    assert_eq!((&done["attempt"], &done["stalls"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_worker_in_python_extends_what_takes_long() {
    keeps(Language::Python).await;
}

#[tokio::test]
async fn a_worker_in_go_extends_what_takes_long() {
    keeps(Language::go().await).await;
}

/// The second worker does what the first one had when it was killed.
async fn takes_over(first: Language, second: Language) {
    let server = Server::start();
    schedule(&server, json!({"name": "slow", "seconds": 1})).await;
    let killed = Program::worker(&first, &server, "1");
    claimed(&server, 1).await;
    drop(killed);
    let mut second = Program::worker(&second, &server, "30");
    assert_eq!(second.says().await, "built slow");
    server.until(REPORT, |task| task["state"] == "done").await;
}

#[tokio::test]
async fn what_a_killed_worker_in_python_had_is_done_by_one_in_go() {
    takes_over(Language::Python, Language::go().await).await;
}

#[tokio::test]
async fn what_a_killed_worker_in_go_had_is_done_by_one_in_python() {
    takes_over(Language::go().await, Language::Python).await;
}

/// The first worker is paused for longer than its lease, and comes back while the second one has the task.
async fn loses(first: Language, second: Language) {
    let server = Server::start();
    schedule(&server, json!({"name": "slow", "seconds": 20})).await;
    let mut paused = Program::worker(&first, &server, "1");
    let task = claimed(&server, 1).await;
    paused.signal("STOP");
    let mut second = Program::worker(&second, &server, "300");
    let taken = claimed(&server, 2).await;
    // It stands still until the first one has said that it has lost, however long that takes.
    second.signal("STOP");
    paused.signal("CONT");
    // It can neither end nor extend the claim, and so stops what it has begun.
    let id = task["id"].as_str().unwrap();
    assert_eq!(paused.says().await, format!("lost the claim of {id}"));
    let same = server.get(REPORT).await.body;
    assert_eq!(
        (&same["version"], &same["state"]),
        (&taken["version"], &json!("running"))
    );
    second.signal("CONT");
    assert_eq!(second.says().await, "built slow");
    server.until(REPORT, |task| task["state"] == "done").await;
}

#[tokio::test]
async fn a_worker_in_python_that_was_paused_beyond_its_lease_has_lost_to_one_in_go() {
    loses(Language::Python, Language::go().await).await;
}

#[tokio::test]
async fn a_worker_in_go_that_was_paused_beyond_its_lease_has_lost_to_one_in_python() {
    loses(Language::go().await, Language::Python).await;
}

/// Its server hangs, and another one might give the task to another worker.
async fn gives_up(language: Language) {
    let server = Server::start();
    schedule(&server, json!({"name": "slow", "seconds": 60})).await;
    let mut worker = Program::worker(&language, &server, "3");
    let task = claimed(&server, 1).await;
    server.signal("-STOP");
    let said = worker.says().await;
    server.signal("-CONT");
    assert_eq!(
        said,
        format!("lost the claim of {}", task["id"].as_str().unwrap())
    );
}

#[tokio::test]
async fn a_worker_in_python_gives_up_when_its_server_hangs() {
    gives_up(Language::Python).await;
}

#[tokio::test]
async fn a_worker_in_go_gives_up_when_its_server_hangs() {
    gives_up(Language::go().await).await;
}

#[tokio::test]
async fn what_is_finished_twice_was_lost_the_second_time() {
    let server = Server::start();
    schedule(&server, json!(null)).await;
    let twice = "import sys; from delayline import Delayline; server = Delayline(sys.argv[1]); \
                 [(claim, _)] = server.claim(['report.build']); print(server.end(claim), server.end(claim))";
    let mut python = Command::new("python3");
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
        .args(["-c", twice, &server.url])
        .current_dir(examples().join("python"));
    assert_eq!(printed(python).await, "True False\n");
}
