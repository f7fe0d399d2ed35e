//! Messages through a real broker, delayed by a clock that is turned.

use std::time::Duration;

use delayline::Timestamp;
use delayline::rocketmq::{Inbox, Message, Publisher, Received, RocketMqOptions};
use serde_json::{Value, json};

use crate::brokers::{fresh, nameserver};
use crate::gateway::config;
use crate::server::{ANY_PORT, Server};
use crate::test_clock::{standing, turned, words};

async fn received(inbox: &Inbox) -> Received {
    let mut messages = inbox.receive(1).await.unwrap();
    inbox.acknowledge(&messages);
    messages.remove(0)
}

/// When a task is due, after so many milliseconds.
fn later(time: &Value, millis: u64) -> Value {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    json!(time.after(Duration::from_millis(millis)).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_out_when_the_clock_is_turned_to_its_time_and_one_that_is_cancelled_never() {
    let (nameserver, name) = (nameserver(), fresh("shop"));
    // These make the topics, too.
    let inbox = async |topic: &str| {
        let options = RocketMqOptions::new(&nameserver).group(fresh("group"));
        Inbox::connect(options, [format!("{name}-{topic}")])
            .await
            .unwrap()
    };
    let (out, answers) = (inbox("out").await, inbox("answers").await);
    let server: Server = standing(&config(&nameserver, &name).replace(ANY_PORT, ""));
    let publisher = Publisher::connect(nameserver.as_str()).await.unwrap();
    let ask = async |key: &str, action: &str| {
        let mut message = Message::new(format!("{name}-in"), *b"{\"order\":42}")
            .key(key)
            .property("DELAYLINE_ACTION", action)
            .property("DELAYLINE_KEY", key)
            .property("DELAYLINE_REPLY_TOPIC", format!("{name}-answers"));
        if action == "schedule" {
            message = message
                .property("DELAYLINE_TOPIC", format!("{name}-out"))
                .property("DELAYLINE_AFTER", "15m");
        }
        publisher.publish(message).await.unwrap();
        let answer = received(&answers).await.body.unwrap();
        serde_json::from_slice::<Value>(&answer).unwrap()["answer"].take()
    };
    // By then the time that the broker knows is another.
    let began = turned(&server, json!({"by": "366d"})).await["now"].clone();

    assert_eq!(ask("order-42", "schedule").await, "new");
    let task = server.get("/v1/tasks/message/order-42").await.body;
    assert_eq!(task["due_at"], later(&began, 900_000));
    assert_eq!(
        turned(&server, json!({"by": "14m 59s 999ms"})).await["events"],
        json!([])
    );
    let due = turned(&server, json!({"by": "1ms"})).await;
    assert_eq!(words(&due), ["started", "published", "done"]);
    assert_eq!(due["events"][1]["topic"], format!("{name}-out"));
    let message = received(&out).await;
    assert_eq!(message.body.as_deref(), Ok(&b"{\"order\":42}"[..]));
    assert_eq!(message.keys().next(), Some("order-42"));

    assert_eq!(ask("order-43", "schedule").await, "new");
    assert_eq!(ask("order-43", "cancel").await, "done");
    assert_eq!(turned(&server, json!({"by": "366d"})).await["events"], json!([]));
}
