//! The gateway on brokers that are there: messages in, messages out, and answers.

mod bodies;
#[cfg(feature = "postgres")]
mod locked;
mod rejected;
mod settings;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::backend::{Backend as _, Departure, RocketMqBackend, Wake};
use delayline::rocketmq::{Inbox, Message, Publisher, Received, RocketMqOptions};
use delayline::{Kind, TaskId};
use serde_json::Value;

use crate::brokers::{fresh, nameserver};
use crate::server::{ANY_PORT, Server};

/// A server with a gateway, and a client that sends to it and receives from it.
struct Shop {
    server: Server,
    publisher: Publisher,
    /// What comes out, and the answers.
    out: Inbox,
    answers: Inbox,
    name: String,
}

impl Shop {
    async fn open() -> Self {
        Self::with("").await
    }

    /// With more settings of `[rocketmq]`.
    async fn with(settings: &str) -> Self {
        Self::configured(|config| config.replacen("[rocketmq]\n", &format!("[rocketmq]\n{settings}"), 1))
            .await
    }

    /// By a configuration that is made of the usual one.
    async fn configured(edited: impl FnOnce(String) -> String) -> Self {
        let name = fresh("shop");
        let nameserver = nameserver();
        // These make the topics, too.
        let receive = async |topic: &str| {
            let options = RocketMqOptions::new(&nameserver).group(fresh("group"));
            let inbox = Inbox::connect(options, [format!("{name}-{topic}")]);
            inbox.await.unwrap()
        };
        let (out, answers) = (receive("out").await, receive("answers").await);
        let server = Server::configured(&edited(config(&nameserver, &name)));
        Self {
            publisher: Publisher::connect(nameserver.as_str()).await.unwrap(),
            server,
            out,
            answers,
            name,
        }
    }

    fn topic(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    fn message(&self, body: impl Into<Vec<u8>>) -> Message {
        Message::new(self.topic("in"), body)
    }

    /// A message of this key that does this, and wants an answer.
    fn asking(&self, key: &str, action: &str) -> Message {
        self.saying(*b"{}", key, action)
    }

    /// The same with a body.
    fn saying(&self, body: impl Into<Vec<u8>>, key: &str, action: &str) -> Message {
        self.message(body)
            .key(key)
            .property("DELAYLINE_KEY", key)
            .property("DELAYLINE_ACTION", action)
            .property("DELAYLINE_REPLY_TOPIC", self.topic("answers"))
    }

    fn scheduling(&self, key: &str, after: &str) -> Message {
        self.asking(key, "schedule")
            .property("DELAYLINE_TOPIC", self.topic("out"))
            .property("DELAYLINE_AFTER", after)
    }

    async fn send(&self, message: Message) {
        // A broker that says that it is busy has not taken it.
        self.send_again_where(message, &["the server is busy"]).await;
    }

    /// Sends a message, and again for as long as it fails for one of these reasons.
    async fn send_again_where(&self, message: Message, reasons: &[&str]) {
        while let Err(error) = self.publisher.publish(message.clone()).await {
            let said = error.to_string();
            assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        }
    }

    /// What is answered to this message.
    async fn ask(&self, message: Message) -> Value {
        self.send(message).await;
        let answers = received(&self.answers).await;
        serde_json::from_slice(answers.body.as_ref().unwrap()).unwrap()
    }

    async fn answers(&self, message: Message, answer: &str) -> Value {
        let said = self.ask(message).await;
        assert_eq!(said["answer"], answer, "{said}");
        said
    }

    async fn comes_out(&self) -> Received {
        received(&self.out).await
    }
}

/// The configuration of a server whose inbox, target and so on have names that begin so.
pub(crate) fn config(nameserver: &str, name: &str) -> String {
    format!(
        "[rocketmq]\nnameserver = \"{nameserver}\"\ntopic = \"{name}-wakes\"\ngroup = \"{name}-wakes\"\n\
         [gateway]\ninbox = \"{name}-in\"\ngroup = \"{name}\"\ntargets = [\"{name}-out\"]\nreplies = [\"{name}-answers\"]\n\
         routes = {{ {name}-routed = \"{name}-out\" }}\n{ANY_PORT}"
    )
}

async fn received(inbox: &Inbox) -> Received {
    let mut messages = inbox.receive(1).await.unwrap();
    inbox.acknowledge(&messages);
    messages.remove(0)
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_out_at_its_time_as_it_was_sent() {
    let shop = Shop::open().await;
    // Long enough for producers to compress it.
    let body: Vec<u8> = b"{\"order\":42}".repeat(1_000);
    let sent_at = now();
    let message = shop
        .message(body.clone())
        .tag("cancel")
        .key("order-42")
        .key("customer-7")
        .sharding_key("7")
        .property("DELAYLINE_KEY", "order-42")
        .property("source", "shop")
        .property("DELAYLINE_TOPIC", shop.topic("out"))
        .property("DELAYLINE_AFTER", "2500ms");
    shop.send(message).await;
    let out = shop.comes_out().await;
    let due: i64 = out.properties["DELAYLINE_DUE_AT"].parse().unwrap();
    assert!(due >= sent_at + 2_500 && now() >= due, "{due}, sent at {sent_at}");
    assert_eq!(out.body.as_ref().unwrap(), &body);
    assert_eq!(out.tag(), Some("cancel"));
    assert_eq!(out.keys().collect::<Vec<_>>(), ["order-42", "customer-7"]);
    assert_eq!(out.sharding_key(), Some("7"));
    let theirs: Vec<_> = out.user_properties().collect();
    let id = out.properties["DELAYLINE_ID"].as_str();
    assert_eq!(
        theirs,
        [
            ("DELAYLINE_ATTEMPT", "1"),
            ("DELAYLINE_DUE_AT", out.properties["DELAYLINE_DUE_AT"].as_str()),
            ("DELAYLINE_ID", id),
            ("source", "shop"),
        ]
    );
    let task = shop.server.get(&format!("/v1/tasks/id/{id}")).await.body;
    assert_eq!(
        (&task["kind"], &task["key"]),
        (&"message".into(), &"order-42".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn its_sender_may_change_its_mind_and_is_told_what_came_of_it() {
    let shop = Shop::open().await;
    let first = shop.answers(shop.scheduling("a", "1h"), "new").await;
    assert_eq!(first["task"]["state"], "scheduled");
    assert!(first["task"]["payload"].is_null(), "its sender has that: {first}");
    shop.answers(shop.scheduling("a", "2h"), "existing").await;
    let replaced = shop.scheduling("a", "3h").property("DELAYLINE_ACTION", "replace");
    shop.answers(replaced, "replaced").await;
    let shifted = shop.asking("a", "shift").property("DELAYLINE_AFTER", "-30m");
    let shifted = shop.answers(shifted, "done").await;
    let moved = shop.asking("a", "reschedule").property("DELAYLINE_AFTER", "2h");
    let moved = shop.answers(moved, "done").await;
    assert!(moved["task"]["due_at"].as_str() < shifted["task"]["due_at"].as_str());
    shop.answers(shop.asking("a", "cancel"), "done").await;
    let again = shop.answers(shop.asking("a", "cancel"), "finished").await;
    assert_eq!(again["task"]["state"], "cancelled");
    let told = shop.server.get("/v1/tasks/message/a?explain=1").await.body;
    let history = told["history"].as_array().unwrap();
    let gateway = format!("gateway:{}", shop.name);
    assert_eq!(history.last().unwrap()["event"], "cancelled", "{told}");
    for entry in history {
        assert_eq!(entry["actor"], gateway.as_str(), "{entry}");
    }
    shop.answers(shop.scheduling("b", "1h"), "new").await;
    shop.answers(shop.asking("b", "run"), "done").await;
    assert_eq!(shop.comes_out().await.keys().next(), Some("b"));
    shop.answers(shop.asking("c", "run"), "not_found").await;
    let absent = shop.asking("c", "reschedule").property("DELAYLINE_AFTER", "2h");
    shop.answers(absent, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_for_what_was_sent_before_it() {
    let shop = Shop::open().await;
    shop.answers(shop.asking("a", "cancel"), "not_found").await;
    // Its mark is no task that could be run, moved or cancelled.
    shop.answers(shop.asking("a", "cancel"), "not_found").await;
    shop.answers(shop.asking("a", "run"), "not_found").await;
    // And for what comes later it is nothing.
    shop.answers(shop.scheduling("a", "1h"), "new").await;
    shop.answers(shop.scheduling("a", "1h"), "existing").await;
    shop.answers(shop.asking("a", "cancel"), "done").await;
    // Nothing came out of all that but this.
    shop.answers(shop.scheduling("b", "0"), "new").await;
    assert_eq!(shop.comes_out().await.keys().next(), Some("b"));
}

/// Messages of one order, found on a broker by the same `KEYS`.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_share_keys_all_come_out_and_are_cancelled_by_their_ids() {
    let shop = Shop::open().await;
    let of_order = |after: &str| {
        shop.message(*b"{}")
            .key("order-42")
            .property("DELAYLINE_TOPIC", shop.topic("out"))
            .property("DELAYLINE_AFTER", after)
            .property("DELAYLINE_REPLY_TOPIC", shop.topic("answers"))
    };
    let first = shop.answers(of_order("2s"), "new").await;
    // What `send` gave its sender is told with the answer as well.
    shop.send(of_order("1h")).await;
    let second = received(&shop.answers).await;
    let second = &second.properties["DELAYLINE_MESSAGE_ID"];
    let cancel = shop
        .message(*b"-")
        .key("order-42")
        .property("DELAYLINE_ACTION", "cancel")
        .property("DELAYLINE_REPLY_TOPIC", shop.topic("answers"));
    let named = shop.answers(cancel.clone(), "rejected").await;
    let error = named["error"].as_str().unwrap();
    assert!(error.contains("DELAYLINE_MESSAGE_ID"), "{error}");
    shop.answers(cancel.property("DELAYLINE_MESSAGE_ID", second), "done")
        .await;
    shop.answers(of_order("2s"), "new").await;
    let mut ids =
        [shop.comes_out().await, shop.comes_out().await].map(|out| out.properties["DELAYLINE_ID"].clone());
    ids.sort();
    assert!(ids.contains(&first["task"]["id"].as_str().unwrap().to_owned()));
    assert_ne!(ids[0], ids[1]);
}

/// A message that was sent with `setDelayTimeLevel` alone, as wake-ups are.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_has_held_back_in_a_level_goes_on_when_it_comes() {
    let shop = Shop::open().await;
    let options = RocketMqOptions::new(nameserver())
        .topic(shop.topic("routed"))
        .group(fresh("group"));
    let sender = RocketMqBackend::connect(options).await.unwrap();
    let wake = Wake {
        id: TaskId::from_bytes([7; 16]),
        kind: Kind::from("any"),
        version: 1,
    };
    let delay = Duration::from_secs(1);
    sender.send(&[Departure { wake, delay }]).await.unwrap();
    let out = shop.comes_out().await;
    assert!(
        out.properties.contains_key("DELAYLINE_DUE_AT"),
        "{:?}",
        out.properties
    );
    sender.close().await.unwrap();
}

/// How far messages are consumed reaches the broker every five seconds: the last come again to the next server.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_that_come_again_after_a_kill_leave_what_was_scheduled_later() {
    let mut shop = Shop::open().await;
    let of_one_queue = |message: Message| message.sharding_key("one queue");
    let mut expected = Vec::new();
    for key in ["a", "b", "c"] {
        let shift = shop.asking(key, "shift").property("DELAYLINE_AFTER", "1h");
        for (message, answer) in [
            (shop.scheduling(key, "1h"), "new"),
            (shop.asking(key, "cancel"), "done"),
            (shop.scheduling(key, "2h"), "new"),
        ] {
            shop.answers(of_one_queue(message), answer).await;
        }
        expected.push((key, shop.answers(of_one_queue(shift), "done").await));
    }
    shop.server.kill_and_start();
    // Dealt with when all before it have been.
    shop.send(of_one_queue(shop.asking("last", "run"))).await;
    while received(&shop.answers).await.keys().next() != Some("last") {}
    for (key, shifted) in expected {
        let task = shop.server.get(&format!("/v1/tasks/message/{key}")).await.body;
        for field in ["id", "state", "due_at"] {
            assert_eq!(task[field], shifted["task"][field], "{field} of {task}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_scheduled_is_logged_counted_and_shown() {
    let shop = Shop::open().await;
    shop.answers(shop.scheduling("a", "1h"), "new").await;
    shop.send(shop.scheduling("a", "2h")).await;
    let answer = received(&shop.answers).await;
    let id = answer.properties["DELAYLINE_MESSAGE_ID"].as_str();
    let why = "another message of its key waits already";
    let log = shop.server.log();
    let said = log.lines().find(|line| line.contains(id));
    assert!(
        said.is_some_and(|line| line.contains("WARN") && line.contains(why)),
        "{log}"
    );
    let figures = shop.server.get("/metrics").await.body;
    let figures = figures.as_str().unwrap();
    assert!(
        figures.contains("delayline_gateway_messages_total{answer=\"existing\"} 1"),
        "{figures}"
    );
    let page = shop.server.get("/brokers").await.body;
    let page = page.as_str().unwrap();
    assert!(page.contains(id) && page.contains(why), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_route_all_go_to_its_target() {
    let shop = Shop::open().await;
    let routed = |after: &str| {
        Message::new(shop.topic("routed"), *b"{}")
            .key("a")
            .property("DELAYLINE_KEY", "a")
            .property("DELAYLINE_AFTER", after)
    };
    shop.send(routed("0")).await;
    assert_eq!(shop.comes_out().await.keys().next(), Some("a"));
    // Their keys are their own.
    shop.answers(shop.scheduling("b", "1h"), "new").await;
    let cancel = Message::new(shop.topic("routed"), *b"-")
        .property("DELAYLINE_KEY", "b")
        .property("DELAYLINE_ACTION", "cancel")
        .property("DELAYLINE_REPLY_TOPIC", shop.topic("answers"));
    shop.answers(cancel, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_key_are_dealt_with_in_their_order() {
    let shop = Shop::open().await;
    for round in 0..20 {
        let key = format!("order-{round}");
        // By one sharding key to one queue, without waiting for answers.
        shop.send(shop.scheduling(&key, "1h").sharding_key(&key)).await;
        let moved = shop.asking(&key, "reschedule").property("DELAYLINE_AFTER", "2h");
        shop.send(moved.sharding_key(&key)).await;
        shop.send(shop.asking(&key, "cancel").sharding_key(&key)).await;
    }
    let mut said = std::collections::BTreeMap::new();
    for _ in 0..60 {
        let answer = received(&shop.answers).await;
        let body: Value = serde_json::from_slice(answer.body.as_ref().unwrap()).unwrap();
        let of_key: &mut Vec<_> = said.entry(answer.keys().next().unwrap().to_owned()).or_default();
        of_key.push(body["answer"].as_str().unwrap().to_owned());
    }
    for (key, mut answers) in said {
        // The answers themselves may overtake each other.
        answers.sort();
        assert_eq!(answers, ["done", "done", "new"], "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_none_that_it_has_taken() {
    let mut shop = Shop::open().await;
    shop.answers(shop.scheduling("a", "3s"), "new").await;
    shop.server.kill_and_start();
    assert_eq!(shop.comes_out().await.keys().next(), Some("a"));
    // And it goes on. What the first one was answered may be answered again, as it has come again.
    shop.send(shop.scheduling("b", "0")).await;
    assert_eq!(shop.comes_out().await.keys().next(), Some("b"));
    shop.server.terminate();
    assert!(shop.server.ended().success(), "{}", shop.server.log());
}
