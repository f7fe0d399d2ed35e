//! Receivers of webhooks in other languages: those of `examples/clients`, and the verifier that is published for Python.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use reqwest::Client;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::task::spawn_blocking;

use crate::programs::{Language, Program, examples};
use crate::python::{files, python};
use crate::receiver::{Received, Receiver};
use crate::server::{ANY_PORT, Server};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const THIRD: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl0Q1PzXl4";

/// A server that posts the tasks of each of these kinds to `url`, signed with what is `secret` in its configuration.
fn posting(url: &str, kinds: &[(&str, &str)]) -> Server {
    let kind = |(name, secret): &(&str, &str)| {
        format!("[kinds.{name}]\ndeliver = {{ url = \"{url}\", secret = {secret} }}\nattempts = 1\n")
    };
    let kinds: String = kinds.iter().map(kind).collect();
    Server::configured(&format!("{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n{kinds}"))
}

async fn schedule(server: &Server, path: &str, payload: Value) {
    let task = json!({"after": "0s", "payload": payload});
    server.put(path, task).await.is(201, "new");
}

/// A webhook for a receiver: its secrets, in order, its age in seconds, and what is in it.
struct Sent<'a> {
    id: &'a str,
    secrets: &'a [&'a str],
    age: i64,
    body: &'a str,
}

/// Posts it with a body that may be another one, and gives the status.
async fn post(url: &str, sent: &Sent<'_>, body: &str) -> u16 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let time = i64::try_from(now).unwrap() - sent.age;
    let sign = |secret: &&str| {
        let webhook = Webhook::new(secret).unwrap();
        webhook.sign(sent.id, time, sent.body.as_bytes()).unwrap()
    };
    let signatures: Vec<_> = sent.secrets.iter().map(sign).collect();
    let request = Client::new()
        .post(url)
        .header("webhook-id", sent.id)
        .header("webhook-timestamp", time)
        .header("webhook-signature", signatures.join(" "));
    request
        .body(body.to_owned())
        .send()
        .await
        .unwrap()
        .status()
        .as_u16()
}

/// Its receiver does what is signed, and once, and nothing else. `failure`: what it says of a task that it cannot do.
async fn receives(language: Language, failure: &str) {
    let mut command = language.command("webhook");
    command.arg("0").env("HOOK_SECRET", SECRET);
    let mut receiver = Program::start(command);
    let said = receiver.says().await;
    let url = said.strip_prefix("receiving at ").unwrap();

    let (both, forged) = (format!("[\"{OTHER}\", \"{SECRET}\"]"), format!("\"{OTHER}\""));
    let server = posting(url, &[("remind", &both), ("forged", &forged)]);
    schedule(&server, "/v1/tasks/remind/7", json!({"invoice": "für 7"})).await;
    assert_eq!(receiver.says().await, "reminded of für 7");
    server
        .until("/v1/tasks/remind/7", |task| task["state"] == "done")
        .await;
    for (path, error) in [
        ("/v1/tasks/forged/7", "answered 401 Unauthorized: not signed"),
        (
            "/v1/tasks/remind/8",
            &format!("answered 500 Internal Server Error: {failure}"),
        ),
    ] {
        schedule(&server, path, json!({"invoices": 0})).await;
        let dead = server.until(path, |task| task["state"] == "dead").await;
        assert_eq!(dead["last_error"], error);
    }

    let body = r#"{"invoice":"9"}"#;
    let sent = |id, secrets, age| Sent {
        id,
        secrets,
        age,
        body,
    };
    for (refused, body) in [
        (sent("a", &[OTHER, THIRD], 0), body),
        (sent("a", &[SECRET], 0), r#"{"invoice":"8"}"#),
        (sent("a", &[SECRET], 600), body),
        (sent("a", &[SECRET], -600), body),
    ] {
        assert_eq!(post(url, &refused, body).await, 401);
    }
    let bare = Client::new().post(url).body(body).send().await.unwrap();
    assert_eq!(bare.status(), 401);
    // Its answer was lost, and it comes again.
    for _ in 0..2 {
        assert_eq!(post(url, &sent("a", &[OTHER, SECRET], 0), body).await, 200);
    }
    assert_eq!(receiver.says().await, "reminded of 9");
    let last = Sent {
        body: r#"{"invoice":"last"}"#,
        ..sent("b", &[SECRET], 0)
    };
    assert_eq!(post(url, &last, last.body).await, 200);
    assert_eq!(receiver.says().await, "reminded of last");
}

#[tokio::test]
async fn a_receiver_in_python_does_what_is_signed_and_once() {
    receives(Language::Python, "'invoice'").await;
}

#[tokio::test]
async fn a_receiver_in_go_does_what_is_signed_and_once() {
    receives(Language::go().await, "no invoice").await;
}

#[tokio::test]
async fn a_receiver_in_java_does_what_is_signed_and_once() {
    receives(Language::Java, "no invoice").await;
}

/// What is said of webhooks by the verifier that is published for Python, and by the example's.
async fn said(asked: Vec<Value>) -> Vec<Value> {
    let mut command = Command::new(python().await);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
        .arg(files().join("verify.py"))
        .arg(examples().join("python/webhook.py"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let said = spawn_blocking(move || {
        let mut verifier = command.spawn().unwrap();
        let mut input = verifier.stdin.take().unwrap();
        for question in asked {
            writeln!(input, "{question}").unwrap();
        }
        drop(input);
        let output = verifier.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    });
    let said = said.await.unwrap();
    said.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A webhook as it came, to be looked at with this secret.
fn with(received: &Received, secret: &str) -> Value {
    let headers = received.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    json!({
        "secret": secret,
        "headers": headers.collect::<std::collections::BTreeMap<_, _>>(),
        "body": std::str::from_utf8(&received.body).unwrap(),
        "later": 0,
    })
}

#[tokio::test]
async fn the_verifier_that_is_published_takes_what_is_genuine_and_nothing_else() {
    let mut receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let (one, both) = (format!("\"{SECRET}\""), format!("[\"{OTHER}\", \"{SECRET}\"]"));
    let server = posting(&receiver.url(), &[("one", &one), ("both", &both)]);
    schedule(
        &server,
        "/v1/tasks/one/1",
        json!({"invoice": "für 7", "sum": 1.10}),
    )
    .await;
    let one = receiver.next().await;
    schedule(&server, "/v1/tasks/both/1", json!(null)).await;
    let both = receiver.next().await;

    let changed = |field: &str, value: Value| {
        let mut changed = with(&one, SECRET);
        *changed.pointer_mut(field).unwrap() = value;
        changed
    };
    let body = std::str::from_utf8(&one.body).unwrap();
    let time: u64 = one.header("webhook-timestamp").unwrap().parse().unwrap();
    let (genuine, unsigned) = ("genuine", "No matching signature found");
    let cases = [
        ("its secret", with(&one, SECRET), genuine),
        ("another secret", with(&one, OTHER), unsigned),
        ("the new secret of two", with(&both, OTHER), genuine),
        ("the old secret of two", with(&both, SECRET), genuine),
        ("another secret than the two", with(&both, THIRD), unsigned),
        (
            "a changed body",
            changed("/body", json!(body.replace('7', "8"))),
            unsigned,
        ),
        (
            "a space more",
            changed("/body", json!(format!("{body} "))),
            unsigned,
        ),
        ("another id", changed("/headers/webhook-id", json!("7")), unsigned),
        (
            "another time",
            changed("/headers/webhook-timestamp", json!((time + 1).to_string())),
            unsigned,
        ),
        ("four minutes later", changed("/later", json!(240)), genuine),
        (
            "ten minutes later",
            changed("/later", json!(600)),
            "Message timestamp too old",
        ),
        (
            "ten minutes before",
            changed("/later", json!(-600)),
            "Message timestamp too new",
        ),
    ];
    let said = said(cases.iter().map(|(_, asked, _)| asked.clone()).collect()).await;
    assert_eq!(said.len(), cases.len());
    for ((case, _, expected), said) in cases.into_iter().zip(said) {
        let of_example = match expected {
            "genuine" => "genuine",
            _ => "refused",
        };
        assert_eq!(said, json!([expected, of_example]), "{case}");
    }
}
