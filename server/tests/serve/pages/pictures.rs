//! Pictures of all pages, to look at: in `target/tmp/pages`.

use std::path::Path;

use serde_json::json;

use super::chromium::Chromium;
use super::dead::dead;
use super::looks::can_be_read;
use crate::python::axe;
use crate::server::Server;

/// As an operator sees pages: at a desk, on a telephone, and in the dark.
const VIEWS: [(&str, &str, u32); 3] = [
    ("1280", "light", 1280),
    ("390", "light", 390),
    ("dark", "dark", 1280),
];

/// A server with something to see on each page; and the ids of a task that waits, and of one that is dead.
async fn lively() -> (Server, [String; 2]) {
    let server = Server::start();
    dead(&server, "mail.send", "503 from the mail server", 3).await;
    dead(&server, "mail.send", "no such address", 1).await;
    for at in 0..12 {
        let path = format!("/v1/tasks/order.cancel/order-{}", 1_040 + at);
        let after = format!("{}m", 5 + at * at);
        let body = json!({"after": after, "payload": {"order": 1_040 + at, "amount": 12}});
        server.put(&path, body).await.is(201, "new");
    }
    let why = json!({"by": "+10m", "reason": "the customer asked for more time"});
    let moved = server.post("/v1/tasks/order.cancel/order-1042/shift", why).await;
    let waits = moved.is(200, "done")["id"].as_str().unwrap().to_owned();
    for key in ["4711", "4712", "4713"] {
        let path = format!("/v1/tasks/invoice.send/{key}");
        server.put(&path, json!({"after": "0s"})).await.is(201, "new");
    }
    for (owner, max) in [("billing-1", 2), ("billing-2", 1)] {
        let wanted = json!({"kinds": ["invoice.send"], "max": max, "owner": owner, "wait": "20s"});
        let claims = server.post("/v1/claims", wanted).await;
        assert_eq!(claims.status, 200);
    }
    let pause = json!({"reason": "the mail server is being moved"});
    let paused = server.post("/v1/kinds/mail.send/pause", pause).await;
    assert_eq!(paused.status, 200);
    let dead = server.get("/v1/tasks?kind=mail.send&state=dead").await.body;
    let dead = dead["tasks"][0]["id"].as_str().unwrap().to_owned();
    (server, [waits, dead])
}

#[tokio::test]
async fn each_page_is_pictured_at_a_desk_on_a_telephone_and_in_the_dark() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    let (server, [waits, dead]) = lively().await;
    let empty = Server::start();
    let pages = [
        ("overview", "/".to_owned()),
        ("tasks", "/tasks?kind=order.cancel".to_owned()),
        ("found", "/tasks?q=order-104".to_owned()),
        ("task", format!("/tasks/{waits}?said=move.done")),
        ("task-dead", format!("/tasks/{dead}")),
        ("dead", "/dead".to_owned()),
        ("kinds", "/kinds".to_owned()),
        ("workers", "/workers".to_owned()),
        ("bulk", "/bulk".to_owned()),
        (
            "bulk-check",
            "/bulk/check?verb=cancel&which=all&kind=order.cancel".to_owned(),
        ),
        ("brokers", "/brokers".to_owned()),
    ];
    let (browser, axe) = (Chromium::new(&server).await, axe().await);
    for (view, scheme, width) in VIEWS {
        for (name, path) in &pages {
            can_be_read(&browser, &axe, path, (scheme, width)).await;
            let picture = browser.picture().await;
            // Where a PNG has its width.
            let wide = u32::from_be_bytes(picture[16..20].try_into().unwrap());
            assert_eq!(wide, width, "{name}");
            std::fs::write(folder.join(format!("{name}-{view}.png")), picture).unwrap();
        }
    }
    browser.end_well().await;
    let (browser, name) = (Chromium::new(&empty).await, "empty");
    for (view, scheme, width) in VIEWS {
        can_be_read(&browser, &axe, "/", (scheme, width)).await;
        std::fs::write(folder.join(format!("{name}-{view}.png")), browser.picture().await).unwrap();
    }
    browser.end_well().await;
}
