//! The processes that hold tasks.

use serde_json::json;

use super::browser::Browser;
use crate::server::Server;

#[tokio::test]
async fn processes_are_told_from_the_tasks_that_they_hold() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let page = browser.get("/workers").await;
    page.says("No process holds a task");
    for (kind, key) in [("mail", "1"), ("mail", "2"), ("order", "1")] {
        let path = format!("/v1/tasks/{kind}/{key}");
        server.put(&path, json!({"after": "0s"})).await.is(201, "new");
    }
    let claim = async |kind: &str, owner: &str, lease: &str| {
        let wanted = json!({"kinds": [kind], "max": 5, "owner": owner, "lease": lease, "wait": "20s"});
        let claims = server.post("/v1/claims", wanted).await.body;
        claims["claims"].as_array().unwrap().len()
    };
    assert_eq!(claim("mail", "mailer-<1>", "10m").await, 2);
    assert_eq!(claim("order", "shop-1", "1h").await, 1);
    let page = browser.get("/workers").await;
    let row = |name: &str| {
        let (_, row) = page
            .text
            .split_once(&format!("<th scope=\"row\">{name}"))
            .unwrap();
        row.split_once("</tr>").unwrap().0.to_owned()
    };
    let mailer = row("mailer-&#60;1&#62;");
    assert!(mailer.contains("class=\"number\">2</td>"), "{mailer}");
    assert!(mailer.contains("/tasks?kind=mail&amp;state=running\">mail</a> <span class=\"dim\">2</span>"));
    assert!(
        mailer.contains("in 9 m ") || mailer.contains("in 10 m"),
        "{mailer}"
    );
    assert!(!mailer.contains("order") && !mailer.contains("not heard from"));
    assert!(row("shop-1").contains("state=running\">order</a>"));
}
