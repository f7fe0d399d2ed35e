//! How a server starts and ends.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::server::{ANY_PORT, Answer, Server, check, command};

#[test]
fn a_configuration_can_be_checked_without_a_server() {
    let fine = check("[store]\nurl = \"sqlite:tasks.db\"\n[kinds.report]\ndeliver = \"pull\"");
    assert!(fine.status.success(), "{fine:?}");
    let wrong = check("[store]\nurl = \"sqlite:tasks.db\"\n\n[kinds.report]\ndeliver = \"push\"");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.starts_with("delayline: delayline.toml line 5: "), "{said}");
}

#[test]
fn a_store_that_this_build_does_not_know_is_refused_without_its_password() {
    for url in [
        "oracle://u:hunter2@h/d",
        "postgres:hunter2",
        "redis://:hunter2@",
        "hunter2://h",
    ] {
        let wrong = check(&format!("[store]\nurl = \"{url}\""));
        assert_eq!(wrong.status.code(), Some(2), "{url}");
        let said = String::from_utf8(wrong.stderr).unwrap();
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn the_configuration_that_is_shown_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/delayline.toml");
    let mut command = command(folder.path());
    command.arg("--config").arg(&file).arg("--check");
    let missing = command.output().unwrap();
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("the environment has no variable"), "{said}");
    command
        .env("DELAYLINE_STORE", "sqlite:tasks.db")
        .env("SHOP_TOKEN_SHA256", "0".repeat(64));
    let checked = command.output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path())
        .args(["--config", "nowhere.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("nowhere.toml cannot be read"), "{said}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let server = Server::start();
    let address = server.url.strip_prefix("http://").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c"), format!("[http]\nlisten = \"{address}\"")).unwrap();
    let output = command(folder.path()).args(["--config", "c"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(address), "{said}");
}

#[tokio::test]
async fn what_was_scheduled_is_there_after_a_kill() {
    let server = Server::start();
    let new = server.put("/v1/tasks/k/1", json!({"after": "1h"})).await;
    let task = new.is(201, "new").clone();
    let server = server.killed_and_started();
    assert_eq!(server.get("/v1/tasks/k/1").await.body, task);
}

#[tokio::test]
async fn it_ends_when_it_is_asked_to() {
    let mut server = Server::start();
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    server.terminate();
    let ended = tokio::task::spawn_blocking(move || (server.ended(), server))
        .await
        .unwrap();
    assert!(ended.0.success());
    assert!(ended.1.log().contains("stopping"));
}

#[tokio::test]
async fn all_is_under_the_base_path() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/later/\""));
    assert!(server.url.ends_with("/later"), "{}", server.url);
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    assert_eq!(server.get("/healthz").await.body, "ok\n");
    let root = server.url.strip_suffix("/later").unwrap();
    let client = reqwest::Client::new();
    let outside = client
        .request(Method::GET, format!("{root}/v1/tasks/k/1"))
        .send()
        .await
        .unwrap();
    assert_eq!(outside.status(), 404);
}

#[tokio::test]
async fn nothing_is_kept_by_browsers_or_taken_for_what_it_is_not() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/later\""));
    let root = server.url.strip_suffix("/later").unwrap();
    for path in [
        "/later/v1/kinds",
        "/later/v1/tasks/k/1",
        "/later/v2",
        "/later/openapi.json",
        "/later/metrics",
        "/later/readyz",
        "/",
    ] {
        let response = reqwest::get(format!("{root}{path}")).await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            (header("cache-control"), header("x-content-type-options")),
            ("no-store".to_owned(), "nosniff".to_owned()),
            "{path}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_reads_a_file_of_tasks() {
    use std::os::unix::fs::PermissionsExt as _;

    let server = Server::start();
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    for file in ["delayline.db", "delayline.db-wal", "delayline.db-shm"] {
        let file = std::fs::metadata(server.folder.path().join(file)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}

/// What is in a file of those by which the server is deployed.
fn deployed(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[tokio::test]
async fn an_image_is_no_root_and_knows_whether_its_server_is_healthy() {
    let dockerfile = deployed("Dockerfile");
    let user = dockerfile.lines().find_map(|line| line.strip_prefix("USER "));
    let (user, group) = user.unwrap().split_once(':').unwrap();
    assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0);
    let health = dockerfile
        .lines()
        .find_map(|line| line.trim().strip_prefix("CMD [\"bash\""));
    let health: Vec<String> = serde_json::from_str(&format!("[\"bash\"{}", health.unwrap())).unwrap();
    let server = Server::start();
    let check = |port: &str| {
        let mut command = std::process::Command::new(&health[0]);
        let last = health[2].replace("7700", port);
        command.args([&health[1], &last]).output().unwrap()
    };
    let port = server.url.rsplit_once(':').unwrap().1.to_owned();
    let healthy = check(&port);
    assert!(healthy.status.success(), "{healthy:?}");
    drop(server);
    assert!(!check(&port).status.success());
}

#[test]
fn the_unit_takes_from_the_server_what_it_does_not_need() {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("delayline.service");
    std::fs::write(&unit, deployed("delayline.service")).unwrap();
    let mut command = std::process::Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--threshold=15", "--no-pager"]);
    match command.arg(&unit).output() {
        Ok(judged) => assert!(judged.status.success(), "{judged:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
    }
}

#[tokio::test]
async fn what_is_not_there_is_told_as_a_problem() {
    let server = Server::start();
    server.get("/v2/tasks").await.refuses(404, "nothing at this path");
    Answer::of(server.request(Method::DELETE, "/v1/tasks"))
        .await
        .refuses(405, "Allow");
}

#[tokio::test]
async fn the_demo_has_life_in_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c"), ANY_PORT).unwrap();
    let server = Server::of(folder, &["--config", "c", "--demo"]);
    let there_are = async |kind: &str, state: &str| {
        let page = server.get(&format!("/v1/tasks?kind={kind}&state={state}")).await;
        !page.body["tasks"].as_array().unwrap().is_empty()
    };
    for (kind, state) in [("order.cancel", "scheduled"), ("order.remind", "scheduled")] {
        while !there_are(kind, state).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let run = server
        .post("/v1/tasks/order.cancel/order-1000/run", json!({}))
        .await;
    // It may just have been cancelled by the demo itself.
    assert!([200, 409].contains(&run.status.as_u16()), "{run:?}");
    while !there_are("order.cancel", "done").await && !there_are("order.cancel", "cancelled").await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn on_a_test_clock_it_is_ready_whatever_the_time_is_and_names_only_what_it_stands_on() {
    let server = crate::test_clock::standing("");
    let ready = json!({"ready": true, "degraded": false, "parts": [{"name": "memory", "ready": true}]});
    assert_eq!(server.get("/readyz").await.body, ready);
    crate::test_clock::turned(&server, json!({"by": "366d"})).await;
    assert_eq!(server.get("/readyz").await.body, ready);
}
