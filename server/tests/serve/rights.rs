//! What a token does not reach: payloads without the right to read, tasks that are delivered otherwise, kinds of others.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Answer, Server};

/// A token that is its own name.
pub(crate) fn token(name: &str, rest: &str) -> String {
    let digest = Sha256::digest(name);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{ name = \"{name}\", sha256 = \"{digest}\", {rest} }}")
}

fn configured(tokens: &[String], more: &str) -> Server {
    Server::configured(&format!("{ANY_PORT}tokens = [{}]\n{more}", tokens.join(", ")))
}

pub(crate) async fn ask(server: &Server, token: &str, method: Method, path: &str, body: Value) -> Answer {
    let mut request = server.request(method.clone(), path).bearer_auth(token);
    if method != Method::GET {
        request = request.json(&body);
    }
    Answer::of(request).await
}

pub(crate) const ALL: &str = "may = [\"read\", \"schedule\", \"change\", \"work\"]";

#[tokio::test]
async fn to_replace_is_a_change_and_a_token_that_may_not_read_sees_no_payload() {
    let server = configured(
        &[
            token("owner", ALL),
            token("scheduler", "may = [\"schedule\"]"),
            token("changer", "may = [\"change\"]"),
        ],
        "",
    );
    let (put, post) = (Method::PUT, Method::POST);
    let secret = json!({"after": "1h", "payload": "hunter2", "headers": {"for": "hunter3"}});
    let new = ask(&server, "owner", put.clone(), "/v1/tasks/k/1", secret).await;
    assert_eq!(new.is(201, "new")["payload"], "hunter2");
    let replace = json!({"after": "2h", "replace": true});
    let refused = ask(&server, "scheduler", put.clone(), "/v1/tasks/k/1", replace).await;
    refused.refuses(403, "may not change");
    let batch = json!([{"kind": "k", "key": "1", "after": "2h", "replace": true}, {"kind": "k", "key": "2", "after": "2h"}]);
    let each = ask(&server, "scheduler", post.clone(), "/v1/tasks", batch)
        .await
        .body;
    assert_eq!(
        (&each[0]["status"], &each[1]["status"]),
        (&json!(403), &json!(201))
    );
    let sees_nothing = |answer: &Answer| {
        let text = answer.body.to_string();
        assert!(!text.contains("hunter"), "{text}");
        assert!(answer.body["task"]["id"].is_string(), "{text}");
        assert_eq!(answer.body["task"].get("headers"), None);
    };
    let existing = ask(&server, "scheduler", put, "/v1/tasks/k/1", json!({"after": "1h"})).await;
    existing.is(200, "existing");
    sees_nothing(&existing);
    for (verb, body, status) in [
        ("shift", json!({"by": "+0s"}), 200),
        ("reschedule", json!({"after": "2h"}), 200),
        ("redrive", json!({}), 409),
        ("cancel", json!({}), 200),
        ("run", json!({}), 409),
    ] {
        let path = format!("/v1/tasks/k/1/{verb}");
        let answer = ask(&server, "changer", post.clone(), &path, body).await;
        assert_eq!(answer.status, status, "{verb}: {answer:?}");
        sees_nothing(&answer);
    }
}

#[tokio::test]
async fn what_is_posted_is_not_claimed_nor_ended_by_a_worker() {
    // It answers only when the test has looked.
    let (looked, looking) = tokio::sync::watch::channel(false);
    let answer = move |_| {
        let mut looking = looking.clone();
        async move {
            let _ = looking.wait_for(|looked| *looked).await;
            axum::response::IntoResponse::into_response(axum::http::StatusCode::OK)
        }
    };
    let receiver = Receiver::start(answer).await;
    let server = Server::configured(&format!(
        "{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.hooked]\ndeliver = {{ url = \"{}\", secret = \
         \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\" }}\n",
        receiver.url()
    ));
    let refused = server.post("/v1/claims", json!({"kinds": ["k", "hooked"]})).await;
    refused.refuses(400, "kinds is \"hooked\"");
    let put = server.put("/v1/tasks/hooked/1", json!({"after": "0s"})).await;
    put.is(201, "new");
    let running = server
        .until("/v1/tasks/hooked/1", |task| task["state"] == "running")
        .await;
    let claim = format!("{}.{}", running["id"].as_str().unwrap(), running["version"]);
    for (end, body) in [
        ("done", json!({})),
        ("retry", json!({})),
        ("snooze", json!({"after": "1h"})),
        ("discard", json!({"reason": "forged"})),
        ("extend", json!({"lease": "1d"})),
    ] {
        let path = format!("/v1/claims/{claim}/{end}");
        server.post(&path, body).await.is(409, "lost");
    }
    let all = server
        .post("/v1/claims:done", json!({"claims": [claim]}))
        .await
        .body;
    assert_eq!(all, json!({"answers": ["lost"]}));
    let still = server.get("/v1/tasks/hooked/1").await.body;
    assert_eq!(
        (&still["state"], &still["version"]),
        (&json!("running"), &running["version"])
    );
    looked.send(true).unwrap();
    server
        .until("/v1/tasks/hooked/1", |task| task["state"] == "done")
        .await;
    // Others are claimed and ended as ever.
    server
        .put("/v1/tasks/k/1", json!({"after": "0s"}))
        .await
        .is(201, "new");
    let given = server
        .post("/v1/claims", json!({"kinds": ["k"], "wait": "30s"}))
        .await
        .body;
    let done = format!(
        "/v1/claims/{}/done",
        given["claims"][0]["claim"].as_str().unwrap()
    );
    server.post(&done, json!({})).await.is(200, "done");
}

/// A server with tasks of `order.a` and `mail`, of which each is known to the token `all`, and the first to `orders`.
pub(crate) async fn of_two_kinds() -> (Server, Vec<Value>) {
    let server = configured(
        &[
            token("all", ALL),
            token("orders", &format!("{ALL}, kinds = [\"order.*\"]")),
            token("scraper", "may = [\"scrape\"], kinds = [\"order.*\"]"),
        ],
        "",
    );
    let mut tasks = Vec::new();
    for kind in ["order.a", "mail"] {
        let path = format!("/v1/tasks/{kind}/1");
        let body = json!({"after": "0s", "payload": "hunter2"});
        let put = ask(&server, "all", Method::PUT, &path, body).await;
        tasks.push(put.is(201, "new").clone());
    }
    (server, tasks)
}

#[tokio::test]
async fn a_token_reaches_the_kinds_that_it_is_for() {
    let (server, tasks) = of_two_kinds().await;
    let get = async |path: &str| ask(&server, "orders", Method::GET, path, json!({})).await;
    let post = async |path: &str, body: Value| ask(&server, "orders", Method::POST, path, body).await;
    let other = "is for other kinds than \"mail\"";
    for path in [
        "/v1/tasks/mail/1",
        "/v1/tasks/mail/1?explain=1",
        "/v1/tasks?kind=mail",
        "/v1/forecast?kind=mail",
        "/v1/events?kind=mail",
    ] {
        get(path).await.refuses(403, other);
    }
    for path in ["/v1/stats", "/metrics"] {
        get(path).await.refuses(403, "all together");
    }
    let scraped = ask(&server, "scraper", Method::GET, "/metrics", json!({})).await;
    scraped.refuses(403, "all together");
    let id = |at: usize| tasks[at]["id"].as_str().unwrap();
    assert_eq!(get(&format!("/v1/tasks/id/{}", id(0))).await.status, 200);
    for explain in ["", "?explain=1"] {
        let path = format!("/v1/tasks/id/{}{explain}", id(1));
        get(&path).await.refuses(404, "no such task");
    }
    let kinds_in = |list: &Value| -> Vec<_> {
        let list = list.as_array().unwrap().iter();
        list.map(|each| each["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds_in(&get("/v1/tasks").await.body["tasks"]), ["order.a"]);
    assert_eq!(kinds_in(&get("/v1/kinds").await.body["kinds"]), ["order.a"]);
    assert_eq!(kinds_in(&get("/v1/forecast").await.body["kinds"]), ["order.a"]);
    // A page is full of what it may see, not short of what it may not.
    assert_eq!(
        kinds_in(&get("/v1/kinds?limit=1").await.body["kinds"]),
        ["order.a"]
    );

    let put = ask(
        &server,
        "orders",
        Method::PUT,
        "/v1/tasks/mail/2",
        json!({"after": "1h"}),
    )
    .await;
    put.refuses(403, other);
    let batch = json!([{"kind": "mail", "after": "1h"}, {"kind": "order.b", "after": "1h"}]);
    let each = post("/v1/tasks", batch).await.body;
    assert_eq!(
        (&each[0]["status"], &each[1]["status"]),
        (&json!(403), &json!(201))
    );
    for (verb, body) in [
        ("cancel", json!({})),
        ("run", json!({})),
        ("redrive", json!({})),
        ("dismiss", json!({})),
        ("reschedule", json!({"after": "2h"})),
        ("shift", json!({"by": "+10m"})),
    ] {
        let path = format!("/v1/tasks/mail/1/{verb}");
        post(&path, body.clone()).await.refuses(403, other);
        let mut bulk = json!({"filter": {"kind": "mail"}, "dry_run": true});
        bulk.as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        post(&format!("/v1/tasks:{verb}"), bulk).await.refuses(403, other);
    }
    for verb in ["pause", "resume"] {
        post(&format!("/v1/kinds/mail/{verb}"), json!({}))
            .await
            .refuses(403, other);
    }
    let claims = json!({"kinds": ["order.a", "mail"]});
    post("/v1/claims", claims).await.refuses(403, other);
    // Nor is a claim ended that is another worker's.
    let given = ask(
        &server,
        "all",
        Method::POST,
        "/v1/claims",
        json!({"kinds": ["mail"]}),
    )
    .await;
    let claim = given.body["claims"][0]["claim"].as_str().unwrap().to_owned();
    post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(409, "lost");
    let own = post("/v1/claims", json!({"kinds": ["order.a"]})).await.body;
    let own = own["claims"][0]["claim"].as_str().unwrap().to_owned();
    let done = post("/v1/claims:done", json!({"claims": [own, claim]}))
        .await
        .body;
    assert_eq!(done, json!({"answers": ["done", "lost"]}));
}

#[tokio::test]
async fn a_change_in_bulk_is_shown_only_to_tokens_that_may_know_its_kind() {
    let (server, _) = of_two_kinds().await;
    let many: Vec<_> = (0..1_001)
        .map(|_| json!({"kind": "mail", "after": "1h"}))
        .collect();
    let many = ask(&server, "all", Method::POST, "/v1/tasks", Value::Array(many)).await;
    assert_eq!(many.status, 200);
    let filter = json!({"filter": {"kind": "mail"}});
    let begun = ask(&server, "all", Method::POST, "/v1/tasks:cancel", filter).await;
    assert_eq!(
        (begun.status, &begun.body["actor"]),
        (StatusCode::ACCEPTED, &json!("api:all"))
    );
    let path = format!("/v1/bulk/{}", begun.body["id"].as_str().unwrap());
    for method in [Method::GET, Method::DELETE] {
        let refused = ask(&server, "orders", method, &path, json!({})).await;
        refused.refuses(404, "no such change");
    }
    let listed = ask(&server, "orders", Method::GET, "/v1/bulk", json!({})).await;
    assert_eq!(listed.body, json!({"jobs": []}));
    let stopped = ask(&server, "all", Method::DELETE, &path, json!({})).await;
    let state = &stopped.body["state"];
    let by = stopped.body.get("stopped_by");
    // It may have ended before that.
    assert!(state == "done" || by == Some(&json!("api:all")), "{stopped:?}");
}
