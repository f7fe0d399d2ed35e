//! A server on brokers that are there.

use delayline::backend::{Backend as _, RocketMqBackend};
use delayline::rocketmq::RocketMqOptions;
use serde_json::json;

use crate::pages::{Chromium, VIEWS, can_be_read};
use crate::python::axe;
use crate::server::{ANY_PORT, Server, command};

pub(crate) fn nameserver() -> String {
    std::env::var("DELAYLINE_ROCKETMQ").unwrap_or_else(|_| {
        panic!(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, \
             or start one by: scripts/rocketmq start DIR"
        )
    })
}

/// A name that nobody else has.
pub(crate) fn fresh(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

/// The configuration of a server whose tasks of a kind go to a topic.
fn config(topic: &str) -> String {
    let (nameserver, wakes) = (nameserver(), fresh("wakes"));
    format!(
        "[rocketmq]\nnameserver = \"{nameserver}\"\ntopic = \"{wakes}\"\ngroup = \"{wakes}\"\n\
         [kinds.\"order.cancel\"]\ndeliver = {{ topic = \"{topic}\", tag = \"cancel\" }}\n{ANY_PORT}"
    )
}

/// Makes a topic that is a service's own: a backend makes its topic where that is missing.
pub(crate) async fn make_topic(nameserver: &str, topic: &str) {
    let options = RocketMqOptions::new(nameserver)
        .topic(topic)
        .group(fresh("group"));
    let maker = RocketMqBackend::connect(options).await.unwrap();
    maker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_published_after_its_hops() {
    let topic = fresh("timeouts");
    make_topic(&nameserver(), &topic).await;
    let server = Server::configured(&config(&topic));
    let ready = server.get("/readyz").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.body["parts"][1]["name"]),
        (200, &json!("rocketmq"))
    );
    let body = json!({"after": "3500ms", "payload": {"order": 1}});
    server.put("/v1/tasks/order.cancel/1", body).await.is(201, "new");
    let done = server
        .until("/v1/tasks/order.cancel/1", |task| task["state"] == "done")
        .await;
    assert!(done["hops"].as_u64().unwrap() >= 1, "{done}");
    let (browser, axe) = (Chromium::new(&server).await, axe().await);
    for path in ["/", "/brokers"] {
        let page = server.get(path).await;
        let page = page.body.as_str().unwrap();
        assert!(page.contains("<tr><th scope=\"row\">1s</th><td class="), "{page}");
        for view in VIEWS {
            can_be_read(&browser, &axe, path, view).await;
        }
    }
    browser.end_well().await;
}

#[cfg(feature = "otlp")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_takes_part_in_the_attempt() {
    use delayline::rocketmq::Inbox;

    use crate::traces::{Collector, traceparent};

    let topic = fresh("timeouts");
    let mut collector = Collector::start().await;
    let options = RocketMqOptions::new(nameserver()).group(fresh("group"));
    // It makes the topic.
    let inbox = Inbox::connect(options, [topic.clone()]).await.unwrap();
    let server = Server::configured(&[config(&topic), collector.config()].concat());
    server
        .put("/v1/tasks/order.cancel/1", json!({"after": "0s", "payload": 1}))
        .await
        .is(201, "new");
    let create = collector.span("create order.cancel").await;
    let process = collector.span("process order.cancel").await;
    let message = inbox.receive(1).await.unwrap().remove(0);
    let properties: std::collections::BTreeMap<_, _> = message.user_properties().collect();
    assert_eq!(properties["traceparent"], traceparent(&process));
    assert_eq!(properties["DELAYLINE_TRACEPARENT"], traceparent(&create));
}

#[test]
fn a_topic_that_is_not_there_is_refused_by_name() {
    let topic = fresh("nowhere");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c"), config(&topic)).unwrap();
    let output = command(folder.path()).args(["--config", "c"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&topic), "{said}");
}
