//! Signing in, and what a token may.

use reqwest::{Method, Response, StatusCode};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::browser::Browser;
use crate::server::{ANY_PORT, Answer, Server};
use crate::test_clock::standing;

/// The configuration with tokens that are their own names.
pub(super) fn tokens(names: &[(&str, &str)]) -> String {
    let token = |(name, may): &(&str, &str)| {
        let digest = Sha256::digest(name);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{{ name = \"the {name}\", sha256 = \"{digest}\", may = [{may}] }}")
    };
    let tokens: Vec<_> = names.iter().map(token).collect();
    format!("{ANY_PORT}tokens = [{}]\n", tokens.join(", "))
}

fn usual() -> String {
    tokens(&[
        ("operator", "\"read\", \"change\", \"schedule\""),
        ("reader", "\"read\""),
        ("changer", "\"change\""),
    ])
}

pub(super) async fn signed_in(server: &Server, token: &str) -> Browser {
    let browser = Browser::new(server);
    let came = browser.post("/sign-in", &[("token", token)]).await;
    assert_eq!(came.status, StatusCode::SEE_OTHER, "{came:?}");
    browser
}

async fn scheduled(server: &Server) -> String {
    scheduled_by(server, "operator").await
}

pub(super) async fn scheduled_by(server: &Server, token: &str) -> String {
    let request = server.request(Method::PUT, "/v1/tasks/k/1");
    let request = request.bearer_auth(token).json(&json!({"after": "1h"}));
    let answer = Answer::of(request).await;
    answer.is(201, "new")["id"].as_str().unwrap().to_owned()
}

/// Changes the task that was scheduled.
async fn change(server: &Server, verb: &str) {
    let request = server.request(Method::POST, &format!("/v1/tasks/k/1/{verb}"));
    let request = request.bearer_auth("operator").json(&json!({}));
    Answer::of(request).await.is(200, "done");
}

#[tokio::test]
async fn a_visitor_who_is_not_signed_in_sees_nothing_and_comes_back_to_the_page() {
    let server = Server::configured(&usual());
    let browser = Browser::new(&server);
    for path in super::PAGES {
        assert!(
            browser.get(path).await.location().starts_with("/sign-in?next="),
            "{path}"
        );
    }
    let events = [("accept", "text/event-stream")];
    let events = browser.send(Method::GET, "/live", &[], &events).await;
    assert_eq!(events.status, StatusCode::UNAUTHORIZED);
    let path = "/tasks?kind=k&state=dead";
    let linked = [("sec-fetch-site", "cross-site")];
    let linked = browser.send(Method::GET, path, &[], &linked).await;
    linked.says(r#"http-equiv="refresh" content="0; url=/tasks?kind=k&#38;state=dead""#);
    let asked = browser.get(path).await;
    let page = browser.get(asked.location()).await;
    assert_eq!(page.status, StatusCode::OK);
    page.says(r#"name="next" value="/tasks?kind=k&#38;state=dead""#);
    let wrong = browser.post("/sign-in", &[("token", "wrong")]).await;
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    wrong.says("This token is not known.");
    assert_eq!(browser.cookie(), None);
    let fields = [("token", "reader"), ("next", "/tasks?kind=k&state=dead")];
    let came = browser.post("/sign-in", &fields).await;
    assert_eq!(came.location(), "/tasks?kind=k&state=dead");
    let cookie = came.headers["set-cookie"].to_str().unwrap();
    let (session, attributes) = cookie.split_once("; ").unwrap();
    assert!(!session.contains("reader"), "a session is not a token");
    assert_eq!(attributes, "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
    browser.get("/").await.says("<span>the reader</span>");
    for next in [
        "https://shop.example/",
        "//shop.example",
        "/\\shop.example",
        "/\t/shop.example",
        "/\n/shop.example",
        "\t//shop.example",
        "/\u{a0}/shop.example",
        "tasks",
    ] {
        let browser = Browser::new(&server);
        let fields = [("token", "reader"), ("next", next)];
        assert_eq!(browser.post("/sign-in", &fields).await.location(), "/", "{next}");
    }
    // As a link has it.
    let page = Browser::new(&server).get("/sign-in?next=/%09/shop.example").await;
    page.says(r#"name="next" value="/""#);
    let log = server.log();
    assert!(!log.contains("\"reader\"") && !log.contains("wrong\""), "{log}");
    assert!(!log.contains(session.split_once('=').unwrap().1), "{log}");
}

#[tokio::test]
async fn behind_tls_the_session_is_sent_by_tls_only() {
    let server = Server::configured(&usual());
    let browser = Browser::new(&server);
    let csrf = browser.csrf().await;
    let fields = [("token", "reader"), ("csrf", csrf.as_str())];
    let headers = [("x-forwarded-proto", "https"), ("sec-fetch-site", "same-origin")];
    let came = browser.send(Method::POST, "/sign-in", &fields, &headers).await;
    assert!(came.headers["set-cookie"].to_str().unwrap().ends_with("; Secure"));
}

#[tokio::test]
async fn each_action_takes_its_right() {
    let server = Server::configured(&usual());
    let id = scheduled(&server).await;
    let task = format!("/tasks/{id}");
    let reader = signed_in(&server, "reader").await;
    let page = reader.get(&task).await;
    page.does_not_say("Cancel the task");
    let edited = format!("{task}?payload=edit");
    for path in super::PAGES
        .into_iter()
        .chain([&*task, &*edited, "/tasks?kind=k"])
    {
        let page = reader.get(path).await;
        let forms: Vec<_> = page.text.split("method=\"post\" action=\"").skip(1).collect();
        assert_eq!(forms.len(), 1, "{path}: what may not be done is not offered");
        assert!(forms[0].starts_with("/sign-out"), "{path}");
        page.does_not_say("/bulk/check");
    }
    for (path, fields) in [
        (format!("{task}/cancel"), &[][..]),
        (format!("{task}/edit"), &[("text", "1")]),
        (format!("{task}/undo"), &[]),
        ("/bulk/undo".to_owned(), &[("task", id.as_str())]),
        ("/kinds/pause".to_owned(), &[("kind", "k")]),
        ("/kinds/resume".to_owned(), &[("kind", "k")]),
    ] {
        let refused = reader.post(&path, fields).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        refused.says("the token of &#34;the reader&#34; may not change");
    }
    let operator = signed_in(&server, "operator").await;
    operator.get(&task).await.says("Cancel the task");
    let done = operator.post(&format!("{task}/cancel"), &[]).await;
    operator.get(done.location()).await.says("Cancelled");
    let changer = signed_in(&server, "changer").await;
    let refused = changer.get("/").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    refused.says("may not read");
    // Nor does it see what it may change, nor gives what it has not seen another payload.
    let wrong = [("to", "tomorrow"), ("payload", "shown")];
    let edit = [("text", "1"), ("payload", "edit"), ("revision", "1")];
    for (verb, fields) in [("move", wrong.as_slice()), ("edit", &edit)] {
        let refused = changer.post(&format!("{task}/{verb}"), fields).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{verb}");
        refused.says("may not read");
    }
    let unfinished = "/bulk/check?verb=cancel&kind=k&state=dead";
    let list = changer.get(unfinished).await;
    let paused = [("kind", "k"), ("until", "tomorrow")];
    let kinds = changer.post("/kinds/pause", &paused).await;
    for refused in [list, kinds] {
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
        refused.says("may not read");
    }
}

#[tokio::test]
async fn a_session_holds_at_each_server_with_the_same_tokens_until_it_is_ended() {
    let (one, other) = (Server::configured(&usual()), Server::configured(&usual()));
    let without = Server::configured(&tokens(&[("operator", "\"read\"")]));
    let browser = signed_in(&one, "reader").await.at(&other);
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    let session = browser.cookie();
    let browser = browser.at(&without);
    assert_eq!(
        browser.get("/").await.status,
        StatusCode::SEE_OTHER,
        "there the token is not known"
    );
    let browser = browser.at(&one);
    // A form of another session is none of this one.
    let foreign = signed_in(&one, "operator").await.csrf().await;
    let fields = [("csrf", foreign.as_str())];
    let left = browser.send(Method::POST, "/sign-out", &fields, &[]).await;
    assert_eq!(left.status, StatusCode::FORBIDDEN);
    browser.set_cookie(session);
    let left = browser.post("/sign-out", &[]).await;
    assert_eq!(left.location(), "/sign-in");
    let cookie = left.headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.starts_with("delayline_session=; Path=/; Max-Age=0;"),
        "{cookie}"
    );
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_visitor_whose_token_shows_nothing_signs_out_or_in_by_another_one() {
    let server = Server::configured(&usual());
    let browser = signed_in(&server, "changer").await;
    let refused = browser.get("/kinds").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    refused.says("action=\"/sign-out\"");
    let foreign = browser.send(Method::POST, "/sign-out", &[], &[]).await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN);
    let session = browser.cookie();
    let left = browser.post("/sign-out", &[]).await;
    assert_eq!(left.location(), "/sign-in");
    assert_eq!(browser.get("/kinds").await.status, StatusCode::SEE_OTHER);

    browser.set_cookie(session);
    let form = browser.get("/sign-in?next=/kinds").await;
    assert_eq!(form.status, StatusCode::OK);
    let mut fields = form.form("/sign-in");
    fields.push(("token".to_owned(), "reader".to_owned()));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    let came = browser.send(Method::POST, "/sign-in", &fields, &[]).await;
    assert_eq!(came.location(), "/kinds");
    assert_eq!(browser.get("/kinds").await.status, StatusCode::OK);
    assert_eq!(browser.get("/sign-in?next=/kinds").await.location(), "/kinds");
}

/// What a page hears while it is looked at.
async fn live(server: &Server, browser: &Browser) -> Response {
    let request = server.request(Method::GET, "/live");
    let request = request.header("cookie", browser.cookie().unwrap());
    let live = request.send().await.unwrap();
    assert_eq!(live.status(), StatusCode::OK);
    live
}

#[tokio::test]
async fn a_page_hears_nothing_after_its_session() {
    let config = usual();
    let server = standing(config.strip_prefix(ANY_PORT).unwrap());
    let reader = signed_in(&server, "reader").await;
    let mut hears = live(&server, &reader).await;
    scheduled(&server).await;
    assert!(hears.chunk().await.unwrap().is_some());
    let turn = async |by: &str| {
        let request = server.request(Method::POST, "/v1/time/advance");
        let turned = Answer::of(request.bearer_auth("operator").json(&json!({"by": by}))).await;
        assert_eq!(turned.status, StatusCode::OK, "{turned:?}");
    };
    turn("11h").await;
    change(&server, "run").await;
    assert!(hears.chunk().await.unwrap().is_some());
    turn("1h").await;
    change(&server, "cancel").await;
    assert_eq!(hears.chunk().await.unwrap(), None);

    // All sessions end with other tokens.
    let reader = signed_in(&server, "reader").await;
    let mut hears = live(&server, &reader).await;
    let fewer = tokens(&[("operator", "\"schedule\""), ("reader", "\"read\"")]);
    server.reload(&fewer).await;
    scheduled(&server).await;
    assert_eq!(hears.chunk().await.unwrap(), None);
    let again = [("accept", "text/event-stream")];
    let again = reader.send(Method::GET, "/live", &[], &again).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn many_wrong_tokens_keep_out_no_right_one() {
    let server = Server::configured(&usual());
    let browser = Browser::new(&server);
    // One more than are answered one by one, and as many again if a minute ends meanwhile.
    let mut too_many = 0;
    for at in 0..22 {
        let wrong = browser
            .post("/sign-in", &[("token", &format!("guess {at}"))])
            .await;
        too_many += usize::from(wrong.status == StatusCode::TOO_MANY_REQUESTS);
        assert!(wrong.status.is_client_error(), "{at}");
    }
    assert!(too_many > 0);
    assert_eq!(browser.cookie(), None);
    let empty = browser.post("/sign-in", &[("token", "")]).await;
    assert!(empty.status.is_client_error());
    // Others may be behind the same address.
    let right = browser.post("/sign-in", &[("token", "reader")]).await;
    assert_eq!(right.status, StatusCode::SEE_OTHER);
}
