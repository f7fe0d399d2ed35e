//! A configuration that is changed while the server runs.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Answer, Server, check, command};
use crate::test_clock::{standing, turned, words};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A server that posts the tasks of the kind `order.cancel`.
fn posting(receiver: &Receiver, secret: &str, beside: &str) -> String {
    format!(
        "{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.\"order.cancel\"]\n\
         deliver = {{ url = \"{}\", secret = \"{secret}\" }}\n{beside}",
        receiver.url()
    )
}

async fn reloads(server: &Server, outcome: &str) -> String {
    let figures = server.get("/metrics").await.body;
    let name = format!("delayline_config_reloads_total{{outcome=\"{outcome}\"}} ");
    let line = figures
        .as_str()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_next_attempt_is_tried_again_by_the_new_backoff() {
    let receiver = Receiver::start(async |_| StatusCode::SERVICE_UNAVAILABLE.into_response()).await;
    // A random part of it is less than a day once in 10^5 times.
    let slow = "backoff_first = \"100000d\"\nbackoff_max = \"100000d\"\nattempts = 3";
    let server = standing("");
    server.reload(&posting(&receiver, SECRET, slow)).await;
    server
        .put("/v1/tasks/order.cancel/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    let once = turned(&server, json!({"by": "1d"})).await;
    assert_eq!(words(&once), ["started", "webhook", "retried"]);

    let quick = "backoff_first = \"0\"\nbackoff_max = \"0\"\nattempts = 3";
    let said = server.reload(&posting(&receiver, SECRET, quick)).await;
    let changed = r#"changed="kinds.\"order.cancel\".backoff_first, kinds.\"order.cancel\".backoff_max""#;
    assert!(said.contains(changed), "{said}");
    server
        .post("/v1/tasks/order.cancel/1/reschedule", json!({"after": "1m"}))
        .await
        .is(200, "done");
    let thrice = turned(&server, json!({"by": "1h"})).await;
    let attempt = ["started", "webhook", "retried"];
    let last = ["started", "webhook", "dead"];
    assert_eq!(words(&thrice), [attempt, attempt, last].concat());
    assert_eq!(
        (
            reloads(&server, "applied").await,
            reloads(&server, "refused").await
        ),
        ("2".into(), "0".into())
    );
    let said = server.reload(&posting(&receiver, SECRET, quick)).await;
    assert!(said.contains("nothing has changed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_under_way_ends_as_it_began_and_the_next_task_goes_where_the_new_file_says() {
    let answer = Arc::new(Notify::new());
    let answering = Arc::clone(&answer);
    let mut old = Receiver::start(move |_| {
        let answering = Arc::clone(&answering);
        async move {
            answering.notified().await;
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    })
    .await;
    let mut new = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let server = Server::configured(&posting(&old, SECRET, "attempts = 1\nconcurrency = 1"));
    server
        .put("/v1/tasks/order.cancel/1", json!({"after": "0"}))
        .await
        .is(201, "new");
    assert!(old.next().await.is_signed_with(SECRET));
    // It waits for a place, which the new configuration has.
    server
        .put("/v1/tasks/order.cancel/2", json!({"after": "0"}))
        .await
        .is(201, "new");

    let said = server
        .reload(&posting(&new, OTHER_SECRET, "attempts = 5\nconcurrency = 1"))
        .await;
    assert!(said.contains(".deliver") && !said.contains("whsec"), "{said}");
    let second = new.next().await;
    assert!(second.is_signed_with(OTHER_SECRET));
    server
        .until("/v1/tasks/order.cancel/2", |task| task["state"] == "done")
        .await;
    let first = server.get("/v1/tasks/order.cancel/1").await.body;
    assert_eq!(
        (&first["state"], &first["attempt"]),
        (&json!("running"), &json!(1))
    );

    answer.notify_one();
    let first = server
        .until("/v1/tasks/order.cancel/1", |task| task["state"] != "running")
        .await;
    assert_eq!(
        (&first["state"], &first["attempt"]),
        (&json!("dead"), &json!(1)),
        "by the one attempt that it had"
    );
    assert!(old.is_empty() && new.is_empty());
    let mut server = server;
    server.terminate();
    let ended = tokio::task::spawn_blocking(move || server.ended()).await.unwrap();
    assert!(ended.success());
}

#[tokio::test]
async fn a_server_that_stops_waits_for_what_began_before_a_reload_and_no_longer_than_it_says() {
    let mut old = Receiver::start(async |_| std::future::pending().await).await;
    let beside = "[worker]\nstop_timeout = \"100ms\"";
    let mut server = Server::configured(&posting(&old, SECRET, beside));
    server
        .put("/v1/tasks/order.cancel/1", json!({"after": "0"}))
        .await
        .is(201, "new");
    old.next().await;
    server.reload(&posting(&old, OTHER_SECRET, beside)).await;
    server.terminate();
    let (ended, mut server) = tokio::task::spawn_blocking(move || (server.ended(), server))
        .await
        .unwrap();
    assert!(ended.success());
    // It was given back, and not left to the end of its lease.
    server.kill_and_start();
    assert!(old.next().await.is_signed_with(OTHER_SECRET));
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing() {
    let mut receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let config = posting(&receiver, SECRET, "");
    let server = Server::configured(&config);
    let kind = "[kinds.report]\ndeliver = \"pull\"\n";
    let mut refused = 0;
    for (wrong, said) in [
        ("[kinds.".to_owned(), "delayline.toml line 1: "),
        (format!("{config}\nbackof = \"1s\""), "unknown field `backof`"),
        (
            format!("{config}\nbackoff_first = \"soon\""),
            r#"kinds."order.cancel".backoff_first: "soon" is no time: allowed are whole numbers with a unit"#,
        ),
        (
            format!("{config}\nattempts = 0"),
            r#"kinds."order.cancel".attempts: invalid value: integer `0`"#,
        ),
        (
            format!("{config}\nhistory = \"some\""),
            "expected one of `off`, `changes`, `all`",
        ),
        (
            format!("{config}\nbackoff_first = \"2h\"\nbackoff_max = \"1h\""),
            r#"kinds."order.cancel".backoff_max is "1h", and backoff_first "2h": allowed is"#,
        ),
        (
            format!("{config}\ndeadline = \"0\""),
            r#"kinds."order.cancel".deadline is "0": allowed is more"#,
        ),
        (
            format!("{config}\n{kind}execution_timeout = \"1m\""),
            r#"kinds."report".execution_timeout is "1m", and the kind is delivered by "pull": allowed is none"#,
        ),
        // And what would be right by itself, beside what needs a restart.
        (
            format!(
                "history = \"all\"\n{}\n{kind}",
                config.replace(SECRET, OTHER_SECRET)
            ),
            "history differ, and only a start takes them over",
        ),
        (
            format!(
                "{}\n{kind}",
                config.replace("[http]\n", "[http]\nbody_limit = 1000\nbase_path = \"/later\"\n")
            ),
            "http.base_path, http.body_limit differ, and only a start",
        ),
    ] {
        refused += 1;
        let told = server.reload(&wrong).await;
        assert!(
            told.contains(said) && told.contains("ERROR"),
            "wanted {said:?}: {told}"
        );
        assert_eq!(reloads(&server, "refused").await, refused.to_string());
        server
            .put("/v1/tasks/order.cancel/1", json!({"after": "0"}))
            .await
            .is(201, "new");
        assert!(receiver.next().await.is_signed_with(SECRET), "{told}");
        server
            .until("/v1/tasks/order.cancel/1", |task| task["state"] == "done")
            .await;
        let kinds = server.get("/kinds").await.body;
        assert!(!kinds.as_str().unwrap().contains("report"), "{kinds}");
    }
    std::fs::remove_file(server.folder.path().join("delayline.toml")).unwrap();
    assert_eq!(reloads(&server, "applied").await, "0");
}

#[tokio::test]
async fn a_store_that_no_worker_could_start_with_keeps_the_one_that_runs() {
    let server = Server::start();
    let next = format!("{ANY_PORT}[kinds.report]\ndeliver = \"pull\"\n");
    let file = server.folder.path().join("delayline.db");
    let rows = sqlx::SqlitePool::connect(file.to_str().unwrap()).await.unwrap();
    let renamed = async |from: &str, to: &str| {
        let rename = sqlx::AssertSqlSafe(format!("ALTER TABLE {from} RENAME TO {to}"));
        sqlx::raw_sql(rename).execute(&rows).await.unwrap();
    };
    renamed("delayline_migrations", "elsewhere").await;
    let said = server.reload(&next).await;
    assert!(
        said.contains("is not used") && said.contains("delayline_migrations"),
        "{said}"
    );
    assert_eq!(reloads(&server, "refused").await, "1");
    renamed("elsewhere", "delayline_migrations").await;
    let said = server.reload(&next).await;
    assert!(said.contains("holds from now on"), "{said}");
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
}

#[tokio::test]
async fn tokens_are_let_in_and_shut_out() {
    // Of `reader`, and of `shop`.
    let tokens = |digests: &[&str]| {
        let token = |(n, digest): (usize, &&str)| {
            format!("{{ name = \"t{n}\", sha256 = \"{digest}\", may = [\"read\", \"schedule\", \"work\"] }}")
        };
        let tokens: Vec<_> = digests.iter().enumerate().map(token).collect();
        format!("{ANY_PORT}tokens = [{}]", tokens.join(", "))
    };
    let reader = "3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30";
    let shop = "8d9001d32c6a703d95921a77115050f33dd823d3f1730bd35215dcbecad6dc20";
    let server = Server::configured(&tokens(&[reader]));
    let status = async |token: &str| {
        let request = server.request(Method::GET, "/v1/kinds").bearer_auth(token);
        Answer::of(request).await.status.as_u16()
    };
    assert_eq!((status("reader").await, status("shop").await), (200, 401));
    let said = server.reload(&tokens(&[reader, shop])).await;
    assert!(
        said.contains("changed=\"http.tokens\"") && !said.contains(shop),
        "{said}"
    );
    assert_eq!((status("reader").await, status("shop").await), (200, 200));
    let listens = server.request(Method::GET, "/v1/events").bearer_auth("reader");
    let mut hears = listens.send().await.unwrap();
    let schedules = async |key: &str| {
        let request = server.request(Method::PUT, &format!("/v1/tasks/k/{key}"));
        let request = request.bearer_auth("shop").json(&json!({"after": "1h"}));
        Answer::of(request).await.is(201, "new");
    };
    schedules("1").await;
    assert!(hears.chunk().await.unwrap().is_some());
    // Of a worker whose token was looked at, and whose body is on its way.
    let body = r#"{"kinds": ["due"], "wait": "60s"}"#;
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer reader\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut late = TcpStream::connect(server.address()).await.unwrap();
    late.write_all(head.as_bytes()).await.unwrap();
    let mut goes_on = [0; 25];
    late.read_exact(&mut goes_on).await.unwrap();
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.reload(&tokens(&[shop])).await;
    assert_eq!((status("reader").await, status("shop").await), (401, 200));
    let due = server.request(Method::PUT, "/v1/tasks/due/1").bearer_auth("shop");
    Answer::of(due.json(&json!({"after": "0"}))).await.is(201, "new");
    late.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with(r#"{"claims":[]}"#), "{answer}");
    schedules("2").await;
    assert_eq!(hears.chunk().await.unwrap(), None, "nor is it told what happens");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_asks_again_and_ends_what_it_was_given_before() {
    let mut receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let server = Server::configured(ANY_PORT);
    server
        .put("/v1/tasks/order.cancel/1", json!({"after": "0"}))
        .await
        .is(201, "new");
    let take = |wait: &str| json!({"kinds": ["order.cancel"], "wait": wait});
    let given = server.post("/v1/claims", take("30s")).await.body;
    let claim = given["claims"][0]["claim"].as_str().unwrap().to_owned();

    let waits = server.post("/v1/claims", take("60s"));
    let reloaded = async {
        server.catches_up().await;
        server.reload(&posting(&receiver, SECRET, "")).await
    };
    let (waited, _) = tokio::join!(waits, reloaded);
    assert_eq!(
        (waited.status.as_u16(), &waited.body["claims"]),
        (200, &json!([]))
    );
    server
        .post("/v1/claims", take("0"))
        .await
        .refuses(400, "the server delivers the tasks of this one itself");
    let done = server.post(&format!("/v1/claims/{claim}/done"), json!({})).await;
    assert_eq!(done.body, json!({"answer": "done"}));
    server
        .put("/v1/tasks/order.cancel/2", json!({"after": "0"}))
        .await
        .is(201, "new");
    assert_eq!(receiver.next().await.header("delayline-key"), Some("2"));
}

#[tokio::test]
async fn a_deadline_and_a_time_to_execute_are_those_of_the_kind() {
    let mut receiver = Receiver::start(async |_| std::future::pending().await).await;
    let beside =
        "execution_timeout = \"200ms\"\ndeadline = \"1h\"\nbackoff_first = \"2h\"\nbackoff_max = \"2h\"";
    let server = Server::configured(&posting(&receiver, SECRET, beside));
    server
        .put("/v1/tasks/order.cancel/1", json!({"after": "0"}))
        .await
        .is(201, "new");
    receiver.next().await;
    let task = server
        .until("/v1/tasks/order.cancel/1", |task| task["last_error"].is_string())
        .await;
    let said = task["last_error"].as_str().unwrap();
    // Of a pause of up to two hours a part is taken, which may be within the deadline.
    assert!(said.ends_with("no answer within 200ms"), "{task}");
    if task["state"] == "dead" {
        assert!(
            said.starts_with("no time for another attempt before the deadline; the last: "),
            "{task}"
        );
    }
}

#[test]
fn a_file_is_compared_with_the_one_that_is_running() {
    let folder = tempfile::tempdir().unwrap();
    let compared = |running: &str, next: &str| {
        std::fs::write(folder.path().join("running"), running).unwrap();
        std::fs::write(folder.path().join("next"), next).unwrap();
        let mut command = command(folder.path());
        let output = command
            .args(["--config", "next", "--check", "--running", "running"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let fine = "the configuration can be used\n";
    let (a, b) = (
        "[http]\nbody_limit = 1000\n",
        "[kinds.report]\ndeliver = \"pull\"\n",
    );
    assert_eq!(
        compared(a, a),
        format!("{fine}nothing differs from what is running\n")
    );
    assert_eq!(
        compared(a, &format!("{a}{b}")),
        format!("{fine}taken over by a reload: kinds.\"report\"\n")
    );
    let both = compared(a, b);
    let restart = "a restart is needed, and a reload is refused, for: http.body_limit\ntaken over by that restart: kinds.\"report\"\n";
    assert_eq!(both, format!("{fine}{restart}"));
    // Defaults that are said are none that differ.
    let said = compared(
        "",
        "history = \"changes\"\n[store]\nurl = \"sqlite:delayline.db\"\n[http]\nlisten = \"127.0.0.1:7700\"\n",
    );
    assert!(said.contains("nothing differs"), "{said}");
    let wrong = check("[http]\nbody_limit = \"much\"");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        said.starts_with("delayline: delayline.toml line 2: http.body_limit: invalid type"),
        "{said}"
    );
}
