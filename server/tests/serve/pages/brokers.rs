//! What a server stands on.

use serde_json::json;

use super::browser::Browser;
use crate::server::Server;

#[tokio::test]
async fn what_the_server_stands_on_is_told_and_how_tasks_came_to_start() {
    let server = Server::start();
    let browser = Browser::new(&server);
    server
        .put("/v1/tasks/k/1", json!({"after": "0s"}))
        .await
        .is(201, "new");
    let claims = server.post("/v1/claims", json!({"kinds": ["k"], "wait": "20s"}));
    assert_eq!(claims.await.status, 200);
    let page = browser.get("/brokers").await;
    page.says("<th scope=\"row\">sqlite</th>");
    page.says("answers");
    page.does_not_say("does not answer");
    page.says("<dt>started when a worker had room again</dt><dd>");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn one_that_does_not_answer_is_told_beside_the_others() {
    use crate::server::ANY_PORT;

    // Nothing listens on port 1.
    let server = Server::configured(&format!("{ANY_PORT}[redis]\nurl = \"redis://127.0.0.1:1\"\n"));
    let browser = Browser::new(&server);
    let page = browser.get("/brokers").await;
    page.says("<th scope=\"row\">redis</th>");
    page.says("does not answer");
    page.says("wake-ups, for any time up to");
    let page = browser.get("/").await;
    page.says("redis does not answer, which was first seen at <time");
}
