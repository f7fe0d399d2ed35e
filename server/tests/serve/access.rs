//! What each token may do.

use reqwest::Method;
use serde_json::json;

use crate::server::{ANY_PORT, Answer, Server, check};

/// The tokens are `reader`, `shop`, `worker` and `scraper`.
pub(crate) const TOKENS: &str = r#"
tokens = [
  { name = "dashboard", sha256 = "3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30", may = ["read"] },
  { name = "shop", sha256 = "8d9001d32c6a703d95921a77115050f33dd823d3f1730bd35215dcbecad6dc20", may = ["schedule", "change"] },
  { name = "builder", sha256 = "87eba76e7f3164534045ba922e7770fb58bbd14ad732bbf5ba6f11cc56989e6e", may = ["work"] },
  { name = "prometheus", sha256 = "7c09b62405a2c0917f8b7440599ce947d2dc40bc8ece294d8be99fd808b593f0", may = ["scrape"] },
]
"#;

#[tokio::test]
async fn each_right_is_needed_for_what_it_allows() {
    let server = Server::configured(&format!("{ANY_PORT}{TOKENS}"));
    let ask = async |method: Method, path: &str, token: Option<&str>| {
        let mut request = server
            .request(method, path)
            .json(&json!({"after": "1h", "kind": "k"}));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        Answer::of(request).await
    };
    let (get, post) = (Method::GET, Method::POST);
    for token in [None, Some("unknown"), Some("")] {
        ask(get.clone(), "/v1/tasks?kind=k", token)
            .await
            .refuses(401, "no token that is known");
    }
    assert_eq!(
        ask(get.clone(), "/v1/tasks?kind=k", Some("reader")).await.status,
        200
    );
    ask(post.clone(), "/v1/tasks", Some("reader"))
        .await
        .refuses(403, "may not schedule");
    ask(post.clone(), "/v1/tasks/k/1/cancel", Some("reader"))
        .await
        .refuses(403, "may not change");
    for verb in ["cancel", "run", "redrive", "dismiss", "reschedule", "shift"] {
        ask(post.clone(), &format!("/v1/tasks:{verb}"), Some("reader"))
            .await
            .refuses(403, "may not change");
    }
    for path in [
        "/v1/tasks?kind=k",
        "/v1/tasks",
        "/v1/kinds",
        "/v1/forecast",
        "/v1/stats",
    ] {
        ask(get.clone(), path, Some("shop"))
            .await
            .refuses(403, "may not read");
    }
    assert_eq!(ask(post, "/v1/tasks", Some("shop")).await.status, 201);
    // What watches the process has no token.
    assert_eq!(ask(get.clone(), "/healthz", None).await.status, 200);
    assert_eq!(ask(get, "/readyz", None).await.status, 200);
    assert!(!server.log().contains("reader"), "no token is in a log");
}

#[tokio::test]
async fn basic_credentials_are_no_token() {
    let server = Server::configured(&format!("{ANY_PORT}{TOKENS}"));
    let request = server
        .request(Method::GET, "/v1/tasks?kind=k")
        .basic_auth("reader", Some("reader"));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn without_tokens_no_page_of_another_site_may_ask() {
    let server = Server::start();
    let host = server.url.strip_prefix("http://").unwrap().to_owned();
    let ask = async |header: &'static str, value: String| {
        let request = server.request(Method::POST, "/v1/tasks/k/1/cancel");
        Answer::of(request.header(header, value)).await
    };
    for origin in ["https://shop.example", "null", "http://127.0.0.1:1"] {
        ask("origin", origin.to_owned())
            .await
            .refuses(403, "Origin is not this machine");
    }
    // A foreign name that has come to mean this machine.
    for name in ["shop.example", "shop.example:7700", "10.0.0.1", ""] {
        ask("host", name.to_owned())
            .await
            .refuses(403, "Host is not this machine");
    }
    for (header, value) in [
        ("origin", format!("http://{host}")),
        ("host", "localhost:7700".to_owned()),
        ("host", "[::1]:7700".to_owned()),
    ] {
        ask(header, value).await.is(404, "not_found");
    }
}

#[tokio::test]
async fn wrong_tokens_are_logged_and_limited_for_each_client() {
    let proxied = format!("{ANY_PORT}trusted_proxies = [\"127.0.0.0/8\"]{TOKENS}");
    let server = Server::configured(&proxied);
    let ask = async |token: &str, client: &'static str| {
        let request = server.request(Method::GET, "/v1/tasks?kind=k").bearer_auth(token);
        // What a client says itself stands before what the proxy says of it.
        request
            .header("x-forwarded-for", format!("192.0.2.77, {client}"))
            .send()
            .await
            .unwrap()
    };
    // One more than are answered one by one, and as many again if a minute ends meanwhile.
    let mut too_many = 0;
    for _ in 0..22 {
        let wrong = ask("wrong-token", "203.0.113.9").await;
        match wrong.status().as_u16() {
            429 => {
                too_many += 1;
                assert_eq!(wrong.headers()["retry-after"], "60");
            }
            status => assert_eq!(status, 401),
        }
    }
    assert!(too_many > 0);
    assert_eq!(
        ask("wrong-token", "203.0.113.10").await.status(),
        401,
        "another client"
    );
    assert_eq!(
        ask("reader", "203.0.113.9").await.status(),
        200,
        "the right token passes"
    );
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("203.0.113.9") && line.contains("WARN"));
    // Ten in each minute, and that there are more.
    assert!((11..=22).contains(&lines.count()), "{log}");
    assert!(
        !log.contains("wrong-token") && !log.contains("192.0.2.77"),
        "{log}"
    );
    // Without one there is nothing to guess.
    for _ in 0..22 {
        let request = server.request(Method::GET, "/v1/tasks?kind=k");
        let status = request
            .header("x-forwarded-for", "203.0.113.11")
            .send()
            .await
            .unwrap()
            .status();
        assert_eq!(status, 401);
    }
}

#[test]
fn the_digest_of_no_token_is_refused() {
    for (digest, said) in [
        (
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "an empty token",
        ),
        (
            "01BA4719C80B6FE911B091A7C05124B64EEECE964E09C058EF8F9805DACA546B",
            "a line break alone",
        ),
        (
            "7eb70257593da06f682a3ddda54a9d260d4fc514f645237f5ca74b08f8da61a6",
            "a line break alone",
        ),
    ] {
        let token = format!("{{ name = \"shop\", sha256 = \"{digest}\", may = [\"read\"] }}");
        let output = check(&format!("{ANY_PORT}tokens = [{token}]\n"));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{digest}");
        assert!(told.contains(said) && told.contains("line 3"), "{told}");
    }
}
