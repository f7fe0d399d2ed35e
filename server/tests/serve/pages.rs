//! The operator's pages, as a browser without scripts meets them.

mod brokers;
mod browser;
mod bulk;
mod chromium;
mod dead;
mod edit;
mod flows;
mod kinds;
mod kinds_of_tokens;
mod live;
mod looks;
mod overview;
mod pictures;
mod questions;
mod sign_in;
mod task;
mod tasks;
mod undo;
mod workers;

use reqwest::{Method, StatusCode};
use serde_json::json;

use self::browser::Browser;
#[cfg(feature = "rocketmq")]
pub(crate) use self::chromium::Chromium;
#[cfg(feature = "rocketmq")]
pub(crate) use self::looks::{VIEWS, can_be_read};
use crate::server::{ANY_PORT, Server};

/// All pages that need nothing but a store.
const PAGES: [&str; 7] = ["/", "/tasks", "/dead", "/kinds", "/workers", "/bulk", "/brokers"];

#[tokio::test]
async fn each_page_runs_nothing_but_our_own_script_and_asks_no_other_server() {
    let server = Server::start();
    let hostile = r#"<script>alert(1)</script>"'&"#;
    let path = format!("/v1/tasks/{}/1", "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22'&");
    let body = json!({"after": "1h", "payload": hostile, "headers": {hostile: hostile}});
    let task = server.put(&path, body).await.is(201, "new").clone();
    let kind = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27%26";
    let pause = json!({ "reason": hostile });
    let paused = server.post(&format!("/v1/kinds/{kind}/pause"), pause).await;
    assert_eq!(paused.status, 200);
    let browser = Browser::new(&server);
    let id = task["id"].as_str().unwrap();
    let mut paths: Vec<String> = PAGES.map(str::to_owned).into();
    paths.extend([
        format!("/tasks/{id}?payload=shown"),
        format!("/tasks?q={kind}1&kind={kind}"),
        format!("/kinds?said=pause.done&of={kind}"),
        format!("/tasks/{id}?said={kind}"),
        format!("/tasks?state={kind}"),
        "/tasks/no-id".to_owned(),
    ]);
    for path in paths {
        let page = browser.get(&path).await;
        let header = |name: &str| page.headers[name].to_str().unwrap();
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        );
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "same-origin");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        assert!(!page.text.contains("<script>"), "{path}: {}", page.text);
        assert!(!page.text.contains("style="), "{path}");
        for place in page.attributes("href").chain(page.attributes("src")) {
            let is_ours = place.starts_with('/') && !place.starts_with("//");
            assert!(is_ours || place == "#main", "{path}: {place}");
        }
    }
    for (path, type_of) in [
        ("/assets/page.css", "text/css; charset=utf-8"),
        ("/assets/live.js", "text/javascript; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
    ] {
        let asset = browser.get(path).await;
        assert_eq!(
            (asset.status, asset.headers["content-type"].as_bytes()),
            (StatusCode::OK, type_of.as_bytes())
        );
    }
}

#[tokio::test]
async fn forms_are_those_of_our_own_pages() {
    let server = Server::start();
    let task = server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new")
        .clone();
    let path = format!("/tasks/{}/cancel", task["id"].as_str().unwrap());
    let browser = Browser::new(&server);
    let csrf = browser.csrf().await;
    for path in ["/bulk/undo", &path.replace("cancel", "undo")] {
        let foreign = browser.send(Method::POST, path, &[], &[]).await;
        assert_eq!(foreign.status, StatusCode::FORBIDDEN, "{path}");
    }
    let post = async |fields: &[(&str, &str)], headers: &[(&'static str, &str)]| {
        browser.send(Method::POST, &path, fields, headers).await.status
    };
    let ours = [("csrf", csrf.as_str())];
    for (fields, headers) in [
        (&[][..], &[][..]),
        (&[("csrf", "")], &[]),
        (&[("csrf", "AAAA")], &[]),
        (&ours, &[("sec-fetch-site", "cross-site")]),
        (&ours, &[("sec-fetch-site", "same-site")]),
        (&ours, &[("origin", "https://shop.example")]),
        (&ours, &[("host", "shop.example")]),
    ] {
        assert_eq!(
            post(fields, headers).await,
            StatusCode::FORBIDDEN,
            "{fields:?} {headers:?}"
        );
    }
    let is = server.get("/v1/tasks/k/1").await.body["state"].clone();
    assert_eq!(is, "scheduled", "nothing was done");
    assert_eq!(
        post(&ours, &[("sec-fetch-site", "same-origin")]).await,
        StatusCode::SEE_OTHER
    );
    let large = "x".repeat(70_000);
    let fields = [("csrf", csrf.as_str()), ("to", large.as_str())];
    assert_eq!(post(&fields, &[]).await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn pages_are_below_the_base_path() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/delay\""));
    let browser = Browser::new(&server);
    let task = server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new")
        .clone();
    let overview = browser.get("").await;
    assert_eq!(overview.status, StatusCode::OK);
    for place in overview.attributes("href").chain(overview.attributes("src")) {
        assert!(place.starts_with("/delay") || place == "#main", "{place}");
    }
    assert_eq!(browser.get("/").await.location(), "/delay");
    let id = task["id"].as_str().unwrap();
    let done = browser.post(&format!("/tasks/{id}/run"), &[]).await;
    assert_eq!(done.location(), format!("/delay/tasks/{id}?said=run.done"));
}
