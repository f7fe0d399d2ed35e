//! Servers over each of the stores: several over one, and one of them killed.

use std::collections::BTreeSet;

use serde_json::json;

use crate::server::{ANY_PORT, Server};

/// How many tasks two servers share.
const TASKS: usize = 200;

/// Tasks that are scheduled at both servers are each claimed once, though one of them is killed meanwhile.
async fn two_share_the_work(url: &str) {
    let config = format!("[store]\nurl = \"{url}\"\n{ANY_PORT}");
    let (first, second) = (Server::configured(&config), Server::configured(&config));
    assert_eq!(first.get("/readyz").await.status, 200);
    let batch = |from: usize| {
        let task = |at| json!({"kind": "k", "key": format!("{at}"), "after": "0s", "payload": at});
        json!((from..from + TASKS / 2).map(task).collect::<Vec<_>>())
    };
    for (server, from) in [(&first, 0), (&second, TASKS / 2)] {
        let answers = server.post("/v1/tasks", batch(from)).await.body;
        assert!(
            answers
                .as_array()
                .unwrap()
                .iter()
                .all(|each| each["answer"] == "new"),
            "{answers}"
        );
    }
    let coming = second.get("/v1/forecast").await.body;
    let due = coming["kinds"][0]["due"].as_array().unwrap();
    assert!(
        due.len() == 8 && due.iter().all(|due| due["tasks"] == TASKS),
        "{coming}"
    );
    let some = second.get("/v1/tasks?key_prefix=19").await.body;
    assert_eq!(some["tasks"].as_array().unwrap().len(), 11, "{some}");
    let mut done = BTreeSet::new();
    let wanted = |lease: &str| json!({"kinds": ["k"], "max": 20, "wait": "30s", "lease": lease});
    let mut first = Some(first);
    while done.len() < TASKS {
        // Half of them by the first, which is killed while it has claims that end by their lease alone.
        if done.len() >= TASKS / 2
            && let Some(first) = first.take()
        {
            let given = first.post("/v1/claims", wanted("2s")).await.body;
            assert!(!given["claims"].as_array().unwrap().is_empty(), "{given}");
        }
        let asked = first.as_ref().unwrap_or(&second);
        let given = asked.post("/v1/claims", wanted("60s")).await.body;
        let claims = given["claims"].as_array().unwrap();
        for claim in claims {
            let end = format!("/v1/claims/{}/done", claim["claim"].as_str().unwrap());
            second.post(&end, json!({})).await.is(200, "done");
            let key = claim["task"]["key"].as_str().unwrap().to_owned();
            assert!(done.insert(key), "each is done once: {claim}");
        }
    }
    let left = second.post("/v1/claims", json!({"kinds": ["k"]})).await.body;
    assert_eq!(left, json!({"claims": []}));
}

/// Makes the tables as an operator does.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn migrate(database: &str, url: &str) {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_delayline"))
        .args(["migrate", database, "--store", url])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[tokio::test]
async fn two_servers_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    two_share_the_work(&format!("sqlite:{}", file.display())).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_servers_share_postgres() {
    let url = crate::database::Database::Postgres.fresh().await;
    migrate("postgres", &url);
    two_share_the_work(&url).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn two_servers_share_mariadb() {
    let url = crate::database::Database::MariaDb.fresh().await;
    migrate("mysql", &url);
    two_share_the_work(&url).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn two_servers_share_redis() {
    let redis = crate::redis_server::RedisServer::start();
    two_share_the_work(&redis.url()).await;
}

/// Whether Redis is told as one that answers; the status says of the whole.
#[cfg(feature = "redis")]
async fn says(server: &Server, redis: bool) -> u16 {
    loop {
        let ready = server.get("/readyz").await;
        let parts = ready.body["parts"].as_array().unwrap();
        let part = parts.iter().find(|part| part["name"] == "redis").unwrap();
        if part["ready"] == redis {
            assert_eq!(ready.body["degraded"], !redis && parts.len() > 1, "{ready:?}");
            return ready.status.as_u16();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_server_is_ready_as_long_as_its_store_is() {
    let mut redis = crate::redis_server::RedisServer::start();
    let beside = Server::configured(&format!("[redis]\nurl = \"{}\"\n{ANY_PORT}", redis.url()));
    assert_eq!(says(&beside, true).await, 200);
    redis.kill();
    assert_eq!(says(&beside, false).await, 200);
    let task = serde_json::json!({"after": "1h"});
    beside.put("/v1/tasks/k/1", task).await.is(201, "new");
    redis.restart();
    assert_eq!(says(&beside, true).await, 200);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_waits_for_a_database_that_is_away_and_says_so() {
    use std::time::Duration;

    use crate::proxy::{Network, Proxy};

    let url = crate::database::Database::Postgres.fresh().await;
    migrate("postgres", &url);
    let (_, after) = url.split_once('@').unwrap();
    let (address, _) = after.split_once('/').unwrap();
    let proxy = Proxy::start(address.parse().unwrap()).await;
    proxy.set(Network::Refusing);
    let port = Proxy::start(address.parse().unwrap()).await.address().port();
    let config = format!(
        "[store]\nurl = \"{}\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n",
        proxy.url(&url)
    );
    let (folder, at) = (tempfile::tempdir().unwrap(), format!("http://127.0.0.1:{port}"));
    std::fs::write(folder.path().join("c"), config).unwrap();
    let log = folder.path().join("log");
    let starting = tokio::task::spawn_blocking(move || Server::of(folder, &["--config", "c"]));
    let get = async |path: &str| {
        let asked = reqwest::get(format!("{at}{path}")).await.ok()?;
        let status = asked.status().as_u16();
        Some((status, asked.text().await.unwrap()))
    };
    let alive = loop {
        match get("/healthz").await {
            Some(alive) => break alive,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert_eq!(alive, (200, "ok\n".to_owned()));
    let (status, body) = get("/readyz").await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
    let away = json!({"ready": false, "parts": [{"name": "postgres", "ready": false}]});
    assert_eq!((status, told), (503, away));
    let (status, body) = get("/v1/tasks/k/1").await.unwrap();
    assert!(status == 503 && body.contains("waits for it"), "{body}");
    while !std::fs::read_to_string(&log)
        .unwrap()
        .contains("the store does not answer")
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!starting.is_finished());

    proxy.set(Network::Open);
    let server = starting.await.unwrap();
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    assert_eq!(server.get("/readyz").await.status, 200);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_server_that_waits_for_its_database_ends_when_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[store]\nurl = \"postgres://u@127.0.0.1:1/d\"\n{ANY_PORT}");
    std::fs::write(folder.path().join("c"), config).unwrap();
    let log = folder.path().join("log");
    let mut command = crate::server::command(folder.path());
    let mut child = command
        .args(["--config", "c"])
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    while !std::fs::read_to_string(&log)
        .unwrap()
        .contains("the store does not answer")
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let id = child.id().to_string();
    let asked = std::process::Command::new("kill").args(["-TERM", &id]).status();
    assert!(asked.unwrap().success());
    assert!(child.wait().unwrap().success());
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn tables_that_are_not_there_are_told_at_the_start() {
    let url = crate::database::Database::Postgres.fresh().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("c"),
        format!("[store]\nurl = \"{url}\"\n{ANY_PORT}"),
    )
    .unwrap();
    let output = crate::server::command(folder.path())
        .args(["--config", "c"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("delayline migrate"), "{said}");
}
