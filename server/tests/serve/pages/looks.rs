//! How pages look: at any width, in light and dark, and with texts that want to be more than texts.

use std::time::Duration;

use serde_json::{Value, json};

use super::PAGES;
use super::chromium::Chromium;
use super::dead::dead;
use crate::python::axe;
use crate::server::Server;

/// What axe-core finds that keeps people from using a page: of what impact, by which rule, and where.
const FAULTS: &str = "
    const done = arguments[0];
    axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => done(violations
        .map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ html }) => html).join(' ')}`)), done);";

/// How people see pages.
pub(crate) const VIEWS: [(&str, u32); 2] = [("light", 1280), ("dark", 390)];

/// Shows the page, and fails if something keeps people from using it.
pub(crate) async fn can_be_read(browser: &Chromium, axe: &str, path: &str, (scheme, width): (&str, u32)) {
    browser.prefer(scheme).await;
    browser.be_wide(width).await;
    browser.go(path).await;
    let more = "const it = document.documentElement; return it.scrollWidth - it.clientWidth";
    let more = browser.run(more).await;
    assert_eq!(more, 0, "{path} has to be scrolled to the side at {width}");
    has_no_faults(browser, axe, &format!("{path} in {scheme}")).await;
}

/// Fails if something keeps people from using what is shown.
async fn has_no_faults(browser: &Chromium, axe: &str, what: &str) {
    browser.run(axe).await;
    let faults = browser.run_async(FAULTS).await;
    assert_eq!(faults, json!([]), "{what}");
}

#[tokio::test]
async fn a_page_whose_server_is_away_can_be_read() {
    let server = Server::start();
    let (browser, axe) = (Chromium::new(&server).await, axe().await);
    browser.go("/").await;
    drop(server);
    let is_away = "return document.getElementById('live').classList.contains('away')";
    while browser.run(is_away).await != json!(true) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for (scheme, _) in VIEWS {
        browser.prefer(scheme).await;
        has_no_faults(&browser, &axe, scheme).await;
    }
}

#[tokio::test]
async fn each_page_can_be_read_at_any_width_in_light_and_dark_and_by_its_names() {
    let server = Server::start();
    let hostile =
        "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">".repeat(2);
    let long = "a-very-long-name-of-an-order-".repeat(8);
    dead(&server, "mail", &hostile, 2).await;
    dead(&server, "mail", &"ParticularlyLongNameOfAnError".repeat(9), 1).await;
    let body = json!({"kind": "k", "key": long, "after": "1h", "payload": {"note": hostile}, "headers": {"note": hostile}});
    let task = server.post("/v1/tasks", body).await.is(201, "new").clone();
    let paused = server
        .post("/v1/kinds/k/pause", json!({ "reason": hostile }))
        .await;
    assert_eq!(paused.status, 200);
    let dead = server.get("/v1/tasks?kind=mail&state=dead").await.body["tasks"][0]["id"].clone();
    let mut pages: Vec<String> = PAGES.map(str::to_owned).into();
    pages.extend([
        format!(
            "/tasks/{}?payload=shown&said=move.done",
            task["id"].as_str().unwrap()
        ),
        format!("/tasks/{}?payload=edit", task["id"].as_str().unwrap()),
        format!("/tasks/{}", dead.as_str().unwrap()),
        "/tasks?kind=mail&state=dead".to_owned(),
        "/tasks?kind=k".to_owned(),
        "/bulk/check?verb=redrive&which=all&kind=mail".to_owned(),
        "/bulk/done?verb=cancel&done=3".to_owned(),
    ]);
    let (browser, axe) = (Chromium::new(&server).await, axe().await);
    let mut backgrounds: Vec<Value> = Vec::new();
    for view in VIEWS {
        for path in &pages {
            can_be_read(&browser, &axe, path, view).await;
            let title = browser.run("return document.title").await;
            assert!(title.as_str().unwrap().ends_with("Delayline"), "{path}: {title}");
            let foreign = "return document.querySelectorAll('body script, img').length";
            assert_eq!(browser.run(foreign).await, 0, "{path}");
        }
        backgrounds.push(
            browser
                .run("return getComputedStyle(document.body).backgroundColor")
                .await,
        );
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
    browser.go(&pages[PAGES.len()]).await;
    assert!(browser.text().await.contains("<script>"), "it is a text");
    browser.end_well().await;
}
