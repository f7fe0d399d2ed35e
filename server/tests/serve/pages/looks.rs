//! How pages look: at any width, in light and dark, and with texts that want to be more than texts.

use serde_json::{Value, json};

use super::PAGES;
use super::chromium::Chromium;
use super::dead::dead;
use crate::server::Server;

/// Texts whose contrast with what is behind them is less than WCAG's level AA asks for.
const FAINT: &str = "
    const parts = (color) => { const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number); return { rgb: [r, g, b], a }; };
    const light = (rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (it) => { for (; it; it = it.parentElement) { const { rgb, a } = parts(getComputedStyle(it).backgroundColor); if (a === 1) return rgb; }
        return [255, 255, 255]; };
    const faint = [];
    for (const it of document.querySelectorAll('body *')) {
        const says = it.matches('input, select') || [...it.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!says || it.matches('option, :disabled') || !it.getClientRects().length) continue;
        const [one, other] = [light(parts(getComputedStyle(it).color).rgb), light(behind(it))].sort((a, b) => b - a);
        const contrast = (one + 0.05) / (other + 0.05);
        if (contrast < 4.5) faint.push(`${it.outerHTML.slice(0, 100)}: ${contrast.toFixed(2)}`);
    }
    return faint;";

/// Fields without a label, tables without headers, headings that leave out a level, ids that are there twice.
const UNNAMED: &str = "
    const wrong = [];
    for (const it of document.querySelectorAll('input:not([type=hidden]), select, button, summary'))
        if (!(it.labels?.length || it.ariaLabel || it.textContent.trim())) wrong.push(it.outerHTML);
    for (const it of document.querySelectorAll('thead th:not([scope=col]), tbody th:not([scope=row])')) wrong.push(it.outerHTML);
    let level = 0;
    for (const it of document.querySelectorAll('h1, h2, h3')) {
        const own = Number(it.tagName[1]); if (own > level + 1) wrong.push(it.outerHTML); level = own;
    }
    const ids = [...document.querySelectorAll('[id]')].map((it) => it.id);
    wrong.push(...ids.filter((id, at) => ids.indexOf(id) !== at));
    if (document.querySelectorAll('main, header, footer').length !== 3 || document.querySelectorAll('h1').length !== 1) wrong.push('landmarks');
    return wrong;";

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
        format!("/tasks/{}", dead.as_str().unwrap()),
        "/tasks?kind=mail&state=dead".to_owned(),
        "/tasks?kind=k".to_owned(),
        "/bulk/check?verb=redrive&which=all&kind=mail".to_owned(),
        "/bulk/done?verb=cancel&done=3".to_owned(),
    ]);
    let browser = Chromium::new(&server).await;
    let none = json!([]);
    let mut backgrounds: Vec<Value> = Vec::new();
    for (scheme, width) in [("light", 1280), ("dark", 390)] {
        browser.prefer(scheme).await;
        browser.be_wide(width).await;
        for path in &pages {
            browser.go(path).await;
            let more = "const it = document.documentElement; return it.scrollWidth - it.clientWidth";
            let more = browser.run(more).await;
            assert_eq!(more, 0, "{path} has to be scrolled to the side at {width}");
            assert_eq!(browser.run(FAINT).await, none, "{path} in {scheme}");
            assert_eq!(browser.run(UNNAMED).await, none, "{path}");
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
