//! Kinds, and those that wait.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::browser::Browser;
use crate::server::{ANY_PORT, Answer, Server};

#[tokio::test]
async fn a_kind_is_paused_with_a_reason_and_resumed() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let put = server.put("/v1/tasks/a%2Fb/1", json!({"after": "0s"})).await;
    put.is(201, "new");
    let fields = [("kind", "a/b"), ("reason", "the disk is full"), ("until", "2h")];
    let paused = browser.post("/kinds/pause", &fields).await;
    let page = browser.get(paused.location()).await;
    page.says("a/b: Paused");
    page.says("the disk is full");
    page.says("in 1 h 59 m");
    let listed = server.get("/v1/kinds").await.body;
    assert_eq!(listed["kinds"][0]["paused"]["reason"], "the disk is full");
    assert_eq!(listed["kinds"][0]["paused"]["actor"], "page:anybody");
    page.says("by page:anybody");
    let resumed = browser.post("/kinds/resume", &[("kind", "a/b")]).await;
    browser.get(resumed.location()).await.says("a/b: Resumed");
    assert_eq!(server.get("/v1/kinds").await.body["kinds"][0].get("paused"), None);
    let resumed = browser.post("/kinds/resume", &[("kind", "a/b")]).await;
    browser.get(resumed.location()).await.says("It was not paused.");
    let wrong = browser
        .post(
            "/kinds/pause",
            &[("kind", "a/b"), ("until", "soon"), ("reason", "a <b>disk</b>")],
        )
        .await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    // In the form, as it was filled in, and beside the field.
    wrong.says("<details open>");
    wrong.says("value=\"soon\"");
    wrong.says("value=\"a &#60;b&#62;disk&#60;/b&#62;\"");
    wrong.says("<p class=\"wrong\" id=\"until-wrong\">");
    assert_eq!(server.get("/v1/kinds").await.body["kinds"][0].get("paused"), None);
}

#[tokio::test]
async fn what_this_server_did_with_the_tasks_of_each_kind_is_told() {
    let server = Server::start();
    let browser = Browser::new(&server);
    for path in ["idle/1", "works/1", "works/2", "works/3"] {
        let path = format!("/v1/tasks/{path}");
        server.put(&path, json!({"after": "0s"})).await.is(201, "new");
    }
    let claims = json!({"kinds": ["works"], "max": 3});
    let claims = server.post("/v1/claims", claims).await.body;
    let claims = claims["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 3);
    let ends = [("done", json!({})), ("discard", json!({"reason": "no paper"}))];
    for (claim, (end, body)) in claims.iter().zip(ends) {
        let end = format!("/v1/claims/{}/{end}", claim["claim"].as_str().unwrap());
        server.post(&end, body).await.is(200, "done");
    }
    let page = browser.get("/kinds").await;
    let row = |kind: &str| {
        let (_, row) = page.text.split_once(&format!("/tasks?kind={kind}\">")).unwrap();
        row.split_once("</tr>").unwrap().0.to_owned()
    };
    let cell = |kind: &str, label: &str| {
        let row = row(kind);
        let (_, cell) = row.split_once(&format!("<td data-label=\"{label}\"")).unwrap();
        cell.split_once("</td>").unwrap().0.to_owned()
    };
    for (label, works, idle) in [
        ("Started a minute", "<span>3.0</span>", "<span>0</span>"),
        ("Failed", " class=\"number bad\">1", " class=\"number zero\">0"),
    ] {
        let (of_works, of_idle) = (cell("works", label), cell("idle", label));
        assert!(
            of_works.ends_with(works) && of_idle.ends_with(idle),
            "{of_works} {of_idle}"
        );
    }
    // All of it was within this minute, or the one before.
    assert!(cell("works", "Started a minute").contains("3 started within the last hour"));
    let path = |kind: &str| {
        cell(kind, "Started a minute")
            .split_once(" d=\"")
            .unwrap()
            .1
            .to_owned()
    };
    assert!(path("works").contains("V0.0h"), "{}", path("works"));
    assert!(path("idle").starts_with("M0 20h60\""), "{}", path("idle"));
    for label in ["Late, p50 / p99", "Took, p50 / p99"] {
        assert!(cell("works", label).contains("s / "), "{}", row("works"));
        assert!(cell("idle", label).ends_with(">"), "{}", row("idle"));
    }
}

#[tokio::test]
async fn where_tasks_go_is_told_without_secrets() {
    let server = Server::configured(&format!(
        "{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.hooked]\ndeliver = {{ url = \
         \"http://127.0.0.1:9/in?key=verysecret\", secret = \"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\" }}\n"
    ));
    let put = server.put("/v1/tasks/hooked/1", json!({"after": "1h"})).await;
    put.is(201, "new");
    let page = Browser::new(&server).get("/kinds").await;
    page.says("posted to 127.0.0.1");
    page.does_not_say("verysecret");
    page.does_not_say("whsec");
}

#[tokio::test]
async fn no_form_changes_a_pause() {
    let server = Server::start();
    let pause = json!({"reason": "the disk is full"});
    assert_eq!(server.post("/v1/kinds/k/pause", pause).await.status, 200);
    let mark = server.get("/v1/tasks/delayline.paused/k").await.body;
    let id = mark["id"].as_str().unwrap();
    let browser = Browser::new(&server);
    for verb in ["cancel", "run", "dismiss"] {
        let refused = browser.post(&format!("/tasks/{id}/{verb}"), &[]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{verb}");
        let all = [("verb", verb), ("which", "all"), ("kind", "delayline.paused")];
        assert_eq!(
            browser.post("/bulk", &all).await.status,
            StatusCode::BAD_REQUEST,
            "{verb}"
        );
    }
    let listed = browser.get("/tasks?kind=delayline.paused").await;
    let chosen = listed.text.split_once("name=\"task\" value=\"").unwrap().1;
    let chosen = chosen.split_once('"').unwrap().0;
    let fields = [("verb", "cancel"), ("which", "chosen"), ("task", chosen)];
    assert_eq!(
        browser.post("/bulk", &fields).await.status,
        StatusCode::BAD_REQUEST
    );
    for path in ["/kinds/pause", "/kinds/resume"] {
        let refused = browser.post(path, &[("kind", "delayline.paused")]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{path}");
    }
    let still = server.get("/v1/tasks/delayline.paused/k").await.body;
    assert_eq!(still["version"], mark["version"]);
    let resumed = browser.post("/kinds/resume", &[("kind", "k")]).await;
    assert_eq!(resumed.status, StatusCode::SEE_OTHER);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_pause_that_cannot_be_read_says_how_to_get_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let config = format!("[store]\nurl = \"sqlite:{}\"\n{ANY_PORT}", file.display());
    let server = Server::configured(&config);
    server
        .put("/v1/tasks/other/1", json!({"after": "0s"}))
        .await
        .is(201, "new");
    let paused = server.post("/v1/kinds/report/pause", json!({})).await;
    assert_eq!(paused.status.as_u16(), 200);
    let rows = sqlx::SqlitePool::connect(file.to_str().unwrap()).await.unwrap();
    let change = async |sql: &str| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&rows)
            .await
            .unwrap()
    };
    change("UPDATE delayline_tasks SET headers = 'x' WHERE kind = 'delayline.paused'").await;
    // The server may hand out what is due for as long as it knows of the pauses from before.
    let none = json!({"kinds": ["none"], "max": 1, "wait": "100ms"});
    while server.post("/v1/claims", none.clone()).await.status != 503 {}

    let ask = async |method: Method, path: &str, body: &Value| {
        loop {
            let request = server.request(method.clone(), path).json(body);
            let answer = Answer::of(request).await;
            // Where a busy machine lets the store wait for too long, it says less.
            if answer.body["detail"]
                .as_str()
                .is_none_or(|said| !said.starts_with("the store does not answer"))
            {
                return answer;
            }
        }
    };
    let refused = ask(Method::GET, "/v1/kinds", &json!({})).await;
    let said = refused.body["detail"].as_str().unwrap().to_owned();
    let (_, digits) = said.split_once("the row ").unwrap();
    let (digits, _) = digits.split_once(' ').unwrap();
    assert_eq!(digits.len(), 32, "{said}");
    let take = json!({"kinds": ["other"], "max": 10, "wait": "30s"});
    for (method, path, body) in [
        (Method::GET, "/v1/kinds", json!({})),
        (Method::GET, "/v1/tasks/other/1?explain=1", json!({})),
        (Method::POST, "/v1/claims", take.clone()),
        (Method::POST, "/v1/kinds/report/resume", json!({})),
        (Method::POST, "/v1/kinds/report/pause", json!({})),
    ] {
        ask(method, path, &body).await.refuses(503, &said);
    }
    let browser = Browser::new(&server);
    for path in ["/", "/kinds"] {
        let mut page = browser.get(path).await;
        while page.text.contains("the store does not answer") {
            page = browser.get(path).await;
        }
        assert_eq!(page.status, 503, "{path}");
        page.says(&said);
    }

    // As docs/databases.md has it.
    change(&format!(
        "DELETE FROM delayline_tasks WHERE kind = 'delayline.paused' AND hex(id) = '{digits}'"
    ))
    .await;
    let taken = server.post("/v1/claims", take).await.body;
    assert_eq!(taken["claims"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/v1/kinds").await.status.as_u16(), 200);
}
