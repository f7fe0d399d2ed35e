//! A server on brokers that are there.

use std::time::Duration;

use delayline::backend::{Backend as _, RocketMqBackend};
use delayline::rocketmq::{Inbox, Message, Publisher, RocketMqOptions};
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::pages::{Chromium, VIEWS, can_be_read};
use crate::proxy::{Network, Proxy};
use crate::python::axe;
use crate::rocketmq_servers::{BROKER, RocketMqServers};
use crate::server::{ANY_PORT, Server, command};

pub(crate) fn nameserver() -> String {
    std::env::var("DELAYLINE_ROCKETMQ").unwrap_or_else(|_| {
        panic!(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, \
             or start one by: scripts/rocketmq start DIR"
        )
    })
}

/// A name that no other test has.
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
        // The first hop: where it was late, no other follows.
        assert!(page.contains("<tr><th scope=\"row\">2s</th><td class="), "{page}");
        for view in VIEWS {
            can_be_read(&browser, &axe, path, view).await;
        }
    }
    browser.end_well().await;
}

#[cfg(feature = "otlp")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_takes_part_in_the_attempt() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_while_nameservers_are_away_and_tells_it_until_they_and_the_topic_are_there() {
    let topic = fresh("timeouts");
    let real = nameserver();
    let proxy = Proxy::start(real.parse().unwrap()).await;
    proxy.set(Network::Refusing);
    let config = config(&topic).replace(&real, &proxy.address().to_string());
    let server = tokio::task::spawn_blocking(move || Server::configured(&config))
        .await
        .unwrap();
    // Later, as a broker makes a topic that something is published to.
    let body = json!({"after": "1h", "payload": 1});
    server.put("/v1/tasks/order.cancel/1", body).await.is(201, "new");
    let topics_are_there = async || {
        let body = reqwest::get(format!("{}/readyz", server.url)).await.unwrap();
        let body: serde_json::Value = body.json().await.unwrap();
        let parts = body["parts"].as_array().unwrap();
        parts
            .iter()
            .all(|part| part["name"] != "topics" || part["ready"] == true)
    };
    assert!(!topics_are_there().await);
    // They come, and the topic is not there.
    proxy.set(Network::Open);
    while !server.log().contains("no broker has the topic") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!topics_are_there().await);
    make_topic(&real, &topic).await;
    while !topics_are_there().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let run = server.post("/v1/tasks/order.cancel/1/run", json!({})).await;
    run.is(200, "done");
    server
        .until("/v1/tasks/order.cancel/1", |task| task["state"] == "done")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_started_without_nameservers_makes_its_inbox_when_they_come() {
    let (real, name) = (nameserver(), fresh("shop"));
    let proxy = Proxy::start(real.parse().unwrap()).await;
    proxy.set(Network::Refusing);
    let config = crate::gateway::config(&proxy.address().to_string(), &name);
    let _server = tokio::task::spawn_blocking(move || Server::configured(&config))
        .await
        .unwrap();
    proxy.set(Network::Open);
    let out = format!("{name}-out");
    let options = RocketMqOptions::new(&real).group(fresh("group"));
    let inbox = Inbox::connect(options, [out.clone()]).await.unwrap();
    let publisher = Publisher::connect(real.as_str()).await.unwrap();
    let inbox_of_gateway = format!("{name}-in");
    while !publisher.topic_exists(&inbox_of_gateway).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let message = Message::new(inbox_of_gateway, *b"{}")
        .property("DELAYLINE_TOPIC", &out)
        .property("DELAYLINE_AFTER", "0");
    publisher.publish(message).await.unwrap();
    assert_eq!(inbox.receive(1).await.unwrap()[0].body.as_ref().unwrap(), b"{}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_takes_over_where_messages_may_go() {
    let (nameserver, name) = (nameserver(), fresh("shop"));
    let config = crate::gateway::config(&nameserver, &name);
    let open = format!("targets = [\"{name}-out\", \"{name}-new\"]\nattempts = 7");
    let wider = config.replace(&format!("targets = [\"{name}-out\"]"), &open);
    let server = spawn_blocking(move || Server::configured(&config)).await.unwrap();
    let options = RocketMqOptions::new(&nameserver).group(fresh("group"));
    let inbox = Inbox::connect(options, [format!("{name}-new")]).await.unwrap();
    let publisher = Publisher::connect(nameserver.as_str()).await.unwrap();
    let message = |body: &[u8]| {
        Message::new(format!("{name}-in"), body)
            .property("DELAYLINE_TOPIC", format!("{name}-new"))
            .property("DELAYLINE_AFTER", "0")
    };
    publisher.publish(message(b"early")).await.unwrap();
    let rejected = "/v1/tasks?kind=delayline.rejected&state=dead";
    server
        .until(rejected, |found| {
            found["tasks"].as_array().is_some_and(|tasks| tasks.len() == 1)
        })
        .await;
    let said = server.reload(&wider).await;
    assert!(
        said.contains("changed=\"gateway.targets, gateway.attempts\""),
        "{said}"
    );
    publisher.publish(message(b"late")).await.unwrap();
    assert_eq!(inbox.receive(1).await.unwrap()[0].body.as_ref().unwrap(), b"late");
}

#[tokio::test(flavor = "multi_thread")]
async fn that_no_broker_can_be_reached_is_said_once_and_that_one_can_again() {
    let brokers = spawn_blocking(|| {
        let brokers = RocketMqServers::start(&["--levels", "1s 2s"]);
        // The nameserver knows of it for two minutes more.
        brokers.kill(BROKER);
        brokers
    });
    let brokers = brokers.await.unwrap();
    let config = crate::gateway::config(&brokers.nameserver, &fresh("shop"));
    let server = spawn_blocking(move || {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("delayline.toml"), config).unwrap();
        let mut command = command(folder.path());
        command
            .args(["--config", "delayline.toml"])
            .env("RUST_LOG", "info,delayline=debug");
        Server::run(folder, command)
    });
    let server = server.await.unwrap();
    let said = |what: &str| server.log().matches(what).count();
    while said("the topics to be received cannot be made yet") < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let back = spawn_blocking(move || {
        brokers.start_again();
        brokers
    });
    let _brokers = back.await.unwrap();
    while said("brokers answer, and messages are received from now on") == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        (said("no broker can be reached"), said("refuses to make")),
        (1, 0)
    );
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
