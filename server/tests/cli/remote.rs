//! `tasks`, `kinds` and `forecast` over a running server.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpListener;

use super::server::{ANY_PORT, Server};
use super::*;

/// The SHA-256 of `secret-1` and of `secret-2`.
const TOKENS: &str = r#"
tokens = [
  { name = "operator", sha256 = "FIRST", may = ["read", "schedule", "change"] },
  { name = "reader", sha256 = "SECOND", may = ["read"] },
]
"#;

fn with_tokens() -> Server {
    use sha2::{Digest as _, Sha256};
    let digest = |token: &str| {
        Sha256::digest(token)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let tokens = TOKENS
        .replace("FIRST", &digest("secret-1"))
        .replace("SECOND", &digest("secret-2"));
    Server::configured(&format!("{ANY_PORT}{tokens}"))
}

/// A server over a file, with a few tasks, one of them of a key that a path has to quote.
async fn shop() -> (Server, String) {
    let server = Server::start();
    for (kind, key, payload) in [
        ("order.cancel", "42", json!({"order": 42, "price": 1.50})),
        ("order.cancel", "a%2Fb%20c", json!([1])),
        ("order.remind", "42", json!(null)),
    ] {
        let body = json!({"after": "1h", "payload": payload});
        server
            .put(&format!("/v1/tasks/{kind}/{key}"), body)
            .await
            .is(201, "new");
    }
    let file = server.folder.path().join("delayline.db");
    let file = file.to_str().unwrap().to_owned();
    (server, file)
}

fn by(server: &Server, arguments: &[&str]) -> String {
    printed(&[arguments, &["--server", &server.url]].concat())
}

fn answer_by(server: &Server, arguments: &[&str]) -> Value {
    serde_json::from_str(&by(server, &[arguments, &["--json"]].concat())).unwrap()
}

/// What the tool says when it fails with this status.
#[track_caller]
fn failed(status: i32, command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(status), &b""[..]),
        "{said}"
    );
    said
}

#[tokio::test]
async fn a_server_shows_what_its_store_does() {
    let (server, file) = shop().await;
    for arguments in [
        &["tasks", "list", "order.cancel"][..],
        &[
            "tasks",
            "list",
            "order.cancel",
            "--key-prefix",
            "a",
            "--limit",
            "1",
        ],
        &[
            "tasks",
            "list",
            "order.cancel",
            "--due-before",
            "2020-01-01T00:00:00Z",
        ],
        &["tasks", "show", "order.cancel", "42"],
        &["tasks", "show", "order.cancel", "a/b c"],
        &["tasks", "find", "42"],
        &["tasks", "find", "--key-prefix", "a/"],
        &["kinds", "list"],
        &["forecast"],
        &["forecast", "order.remind"],
    ] {
        for json in [&[][..], &["--json"]] {
            let arguments = [arguments, json].concat();
            let stored = printed(&[&arguments[..], &["--store", &file]].concat());
            assert_eq!(by(&server, &arguments), stored, "{arguments:?}");
        }
    }
    let found = by(&server, &["tasks", "find", "42"]);
    assert!(
        found.contains("order.cancel") && found.contains("order.remind"),
        "{found}"
    );
    let shown = by(&server, &["tasks", "show", "order.cancel", "42", "--json"]);
    assert!(shown.contains(r#""payload":{"order":42,"price":1.5}"#), "{shown}");
}

#[tokio::test]
async fn each_verb_is_done_by_a_server() {
    let (server, file) = shop().await;
    let order = ["order.cancel", "42"];
    let verb = |verb: &str, more: &[&str]| {
        let came = answer_by(&server, &[&["tasks", verb], &order[..], more].concat());
        assert_eq!(
            came["answer"],
            if verb == "rerun" { "new" } else { "done" },
            "{verb}: {came}"
        );
        assert!(came["task"].get("payload").is_none(), "{came}");
        came["task"].clone()
    };
    let at = "2099-01-01T00:00:00Z";
    assert_eq!(verb("reschedule", &["--at", at])["due_at"], at);
    assert_eq!(verb("shift", &["--by", "-1h"])["due_at"], "2098-12-31T23:00:00Z");
    let edited = verb(
        "edit",
        &[
            "--payload",
            "{\"b\": 1,  \"a\": \"\u{7f}\"}",
            "--reason",
            "a typo",
        ],
    );
    assert_eq!(edited["due_at"], "2098-12-31T23:00:00Z");
    let shown = printed(&["tasks", "show", "order.cancel", "42", "--json", "--store", &file]);
    assert!(
        shown.contains("\"payload\":{\"b\": 1,  \"a\": \"\u{7f}\"}"),
        "{shown}"
    );
    assert_eq!(verb("change", &["--at", at])["due_at"], at);
    let id = edited["id"].as_str().unwrap();
    let told = answer_by(&server, &["tasks", "explain", "--id", id]);
    let events: Vec<_> = told["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["event"])
        .collect();
    assert_eq!(events, ["scheduled", "moved", "moved", "edited", "moved"]);
    assert_eq!(
        (&told["history"][3]["reason"], &told["history"][3]["actor"]),
        (&json!("a typo"), &json!("api:anybody"))
    );
    assert!(by(&server, &["tasks", "explain", "--id", id]).contains("a typo"));
    assert_eq!(verb("cancel", &[])["state"], "cancelled");
    let again = verb("rerun", &[]);
    assert_ne!(again["id"], id);
    let by_id = answer_by(
        &server,
        &["tasks", "cancel", "--id", again["id"].as_str().unwrap()],
    );
    assert_eq!(by_id["answer"], "done");
    let late = output(&["tasks", "cancel", "order.cancel", "42", "--server", &server.url]);
    let said = String::from_utf8(late.stderr).unwrap();
    assert_eq!((late.status.code(), &*late.stdout), (Some(1), &b""[..]));
    assert!(
        said.contains("it is cancelled, and cancel is for scheduled tasks"),
        "{said}"
    );

    let paused = by(&server, &["kinds", "pause", "order.remind", "--reason", "a move"]);
    assert!(
        paused.contains("order.remind is paused since ") && paused.contains(": a move"),
        "{paused}"
    );
    assert_eq!(by(&server, &["kinds", "resume", "order.remind"]), "resumed\n");
}

#[tokio::test]
async fn all_that_match_are_changed_by_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::of(folder, &["--listen", "127.0.0.1:0", "--color", "always"]);
    // Into a file.
    assert!(server.log().contains("\u{1b}["));
    for _ in 0..5 {
        let tasks: Vec<_> = (0..241).map(|_| json!({"kind": "k", "after": "1h"})).collect();
        assert_eq!(server.post("/v1/tasks", tasks.into()).await.status.as_u16(), 200);
    }
    let counted = answer_by(
        &server,
        &["tasks", "shift", "k", "--all", "--by", "+1h", "--dry-run"],
    );
    assert_eq!(counted, json!({"matched": 1_205, "answers": null}));
    let shift = ["tasks", "shift", "k", "--all", "--by", "+1h"];
    let line = refused(&[&shift[..], &["--server", &server.url]].concat());
    assert!(
        line.starts_with("1205 tasks match (kind k, scheduled), and shift") && line.contains("--yes"),
        "{line}"
    );
    // It goes on behind the call, and is waited for.
    let moved = answer_by(&server, &[&shift[..], &["--yes"]].concat());
    assert_eq!(
        (&moved["matched"], &moved["answers"]["done"]),
        (&json!(1_205), &json!(1_205))
    );
}

#[tokio::test]
async fn a_token_is_given_by_a_file_or_the_environment_and_shown_nowhere() {
    let server = with_tokens();
    let list = || {
        let mut command = tool(&["kinds", "list", "--server", &server.url]);
        for variable in ["DELAYLINE_TOKEN", "DELAYLINE_TOKEN_FILE"] {
            command.env_remove(variable);
        }
        command
    };
    let told = failed(1, &mut list());
    assert!(
        told.contains("knows no such token") && told.contains("--token-file"),
        "{told}"
    );
    let told = failed(1, list().env("DELAYLINE_TOKEN", "secret-3"));
    assert!(
        told.contains("knows no such token") && !told.contains("secret-3"),
        "{told}"
    );
    let file = server.folder.path().join("token");
    std::fs::write(&file, "secret-2\n").unwrap();
    for command in [
        list().env("DELAYLINE_TOKEN", "secret-2"),
        list().env("DELAYLINE_TOKEN_FILE", &file),
        list()
            .arg("--token-file")
            .arg(&file)
            .env("DELAYLINE_TOKEN", "secret-3"),
        list()
            .args(["--token-file", "-"])
            .stdin(std::fs::File::open(&file).unwrap()),
        list().args(["--token", "secret-2"]),
    ] {
        assert!(command.output().unwrap().status.success(), "{command:?}");
    }
    let told = failed(2, list().args(["--token", "secret 2"]));
    assert!(
        told.contains("--token is not shown") && !told.contains("secret 2"),
        "{told}"
    );
    let told = failed(2, list().args(["--token-file", "/no/such/token"]));
    assert!(
        told.contains("--token-file is \"/no/such/token\": allowed is the path of a file"),
        "{told}"
    );
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let server = with_tokens();
    let mut command = tool(&["tasks", "cancel", "k", "1", "--server", &server.url]);
    let told = failed(1, command.env("DELAYLINE_TOKEN", "secret-2"));
    assert!(told.contains("refuses: ") && told.contains("change"), "{told}");
    assert!(!server.log().contains("secret-2"));
}

/// Answers each request with this.
fn other(said: impl Into<String>) -> String {
    let said = said.into();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(said.as_bytes());
        }
    });
    format!("http://{address}")
}

/// Answers a request with each of these in turn; one that is empty is the end of the connection.
fn in_turn(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let (mut request, mut part) = (Vec::new(), [0; 4_096]);
            // It asks without a body, or with one of JSON.
            let is_whole = |request: &[u8]| {
                let end: &[u8] = if request.starts_with(b"GET ") {
                    b"\r\n\r\n"
                } else {
                    b"}"
                };
                request.ends_with(end)
            };
            while !is_whole(&request) {
                let Ok(read @ 1..) = stream.read(&mut part) else {
                    break;
                };
                request.extend_from_slice(&part[..read]);
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn a_change_that_goes_on_is_followed_past_looks_that_fail() {
    let answer = |status: &str, body: Value| {
        let body = body.to_string();
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    };
    let job = |state: &str, done: usize| {
        let answers =
            json!({"done": done, "too_late": 0, "finished": 0, "conflict": 0, "not_found": 0, "failed": 0});
        json!({"id": "5f0c2a9e11d84b37", "state": state, "seen": 2_000, "answers": answers})
    };
    let url = in_turn(vec![
        answer("202 Accepted", job("running", 0)),
        String::new(),
        answer("503 Service Unavailable", json!({"detail": "the server is busy"})),
        answer("200 OK", job("running", 100)),
        String::new(),
        answer("200 OK", job("done", 2_000)),
    ]);
    let shift = [
        "tasks", "shift", "k", "--all", "--by", "+1h", "--yes", "--server", &url,
    ];
    assert_eq!(printed(&shift), "2000 match\n2000 were changed\n");
}

#[tokio::test]
async fn what_is_wrong_with_an_address_is_told() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/later\""));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let html =
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\nconnection: close\r\n\r\n<a/>";
    let moved = "HTTP/1.1 308 Moved\r\nlocation: https://elsewhere.example/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let newer = r#"{"info": {"title": "Delayline", "version": "99.1.0"}, "kinds": 1}"#;
    let length = newer.len();
    let newer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{newer}"
    );
    let root = server
        .url
        .strip_suffix("/later")
        .unwrap_or(&server.url)
        .to_owned();
    for (url, said) in [
        (format!("http://{closed}"), "no connection to http://127.0.0.1"),
        (
            format!("https://{}", root.trim_start_matches("http://")),
            "no connection to https://",
        ),
        (
            root.clone(),
            "there is nothing at this path; perhaps the URL is of something else, or its http.base_path",
        ),
        (
            other(html),
            "does not answer as a Delayline server does (status 200",
        ),
        (
            other(moved),
            "\"https://elsewhere.example/\", which is not followed",
        ),
        (other(newer), "the server is of version 99.1.0, and this tool of "),
    ] {
        let told = failed(1, &mut tool(&["kinds", "list", "--server", &url]));
        assert!(told.contains(said), "{url}: {told}");
    }
    assert_eq!(
        printed(&["kinds", "list", "--server", &format!("{root}/later")]),
        ""
    );
    for (url, said) in [
        (
            "localhost:7700",
            "--server is \"localhost:7700\": allowed is http://",
        ),
        ("ftp://a", "allowed is http://"),
        ("http://u:hunter2@a", "--server is not shown"),
        ("http://a?token=1", "allowed is http://"),
    ] {
        let line = refused(&["kinds", "list", "--server", url]);
        assert!(line.contains(said) && !line.contains("hunter2"), "{line}");
    }
    let line = refused(&["kinds", "list", "--server", &root, "--store", "x.db"]);
    assert!(line.contains("cannot be used with"), "{line}");
    let line = refused(&["kinds", "list", "--store", "x.db", "--token", "s3cret"]);
    assert!(
        line.contains("cannot be used with") && !line.contains("s3cret"),
        "{line}"
    );
    let line = refused(&["tasks", "show", "k", "..", "--server", &root]);
    assert!(line.contains("a URL has no place for it"), "{line}");
    let told = failed(
        2,
        tool(&["kinds", "list"])
            .env_remove("DATABASE_URL")
            .env("DELAYLINE_SERVER", ""),
    );
    assert!(told.contains("it is not said where the tasks are"), "{told}");
}

#[tokio::test]
async fn a_kind_for_which_a_url_has_no_place_is_refused_and_left_out() {
    let (server, file) = shop().await;
    for kind in ["id", "."] {
        let task = json!([{"kind": kind, "key": "42", "after": "1h"}]);
        assert_eq!(server.post("/v1/tasks", task).await.status, 200);
        let line = refused(&["tasks", "cancel", kind, "42", "--server", &server.url]);
        assert!(
            line.contains(&format!("a name is {kind:?}: a URL has no place for it")),
            "{line}"
        );
    }
    let found = |place: [&str; 2]| {
        let output = output(&[&["tasks", "find", "42", "--json"][..], &place].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        (output.stdout.lines().count(), said)
    };
    assert_eq!(found(["--store", &file]), (4, String::new()));
    let (count, said) = found(["--server", &server.url]);
    assert_eq!(count, 2);
    for kind in ["id", "."] {
        let left_out = format!("the key was not looked for in the kind {kind:?}");
        assert!(said.contains(&left_out), "{said}");
    }
}

#[tokio::test]
async fn what_is_nearly_right_and_what_is_not_all_is_told() {
    let (server, file) = shop().await;
    let meant = "there are no tasks of kind \"ordr.cancel\"; there are of \"order.cancel\"";
    let more = "these are the first 1, and there may be more: allowed is a higher --limit";
    let none = "there is no such task";
    for place in [["--server", &server.url], ["--store", &file]] {
        for (arguments, status, hint) in [
            (&["tasks", "show", "ordr.cancel", "42"][..], 1, meant),
            (&["tasks", "list", "ordr.cancel"], 0, meant),
            (&["tasks", "cancel", "ordr.cancel", "42"], 1, meant),
            (&["tasks", "cancel", "ordr.cancel", "--all"], 0, meant),
            (&["kinds", "resume", "ordr.cancel"], 0, meant),
            (&["forecast", "ordr.cancel"], 0, meant),
            (&["tasks", "list", "order.cancel", "--limit", "1"], 0, more),
            (&["tasks", "find", "42", "--limit", "1"], 0, more),
            (&["tasks", "find", "43"], 1, none),
            (&["tasks", "find", "43", "--json"], 1, none),
        ] {
            let output = output(&[arguments, &place].concat());
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                said.lines().any(|line| line == format!("delayline: {hint}")),
                "{arguments:?}: {said}"
            );
            assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        }
    }
}
