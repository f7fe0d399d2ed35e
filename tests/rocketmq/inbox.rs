//! Tests received messages, and those that come again.

use delayline::Timestamp;
use delayline::rocketmq::{Inbox, Message, Publisher};

use super::*;

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_back_to_its_broker_was_stored_when_it_came_first() {
    let (topic, group) = (format!("in-{}", unique()), format!("readers-{}", unique()));
    let options = RocketMqOptions::new(nameserver()).group(&group);
    // It creates the topic and the group.
    Inbox::connect(options.clone(), [topic.clone()])
        .await
        .unwrap()
        .close()
        .await;
    let publisher = Publisher::connect(nameserver()).await.unwrap();
    let before = now();
    publisher.publish(Message::new(&topic, *b"1")).await.unwrap();
    let after = now();
    let raw = Raw::new(&nameserver());
    raw.give_back(&topic, &group).await;
    raw.close().await;
    let given_back = now();

    let inbox = Inbox::connect(options, [topic.clone()]).await.unwrap();
    let again = timeout(SAFETY, inbox.receive(1))
        .await
        .expect("it comes again")
        .unwrap();
    assert_eq!(
        (again[0].topic.as_str(), again[0].body.as_deref()),
        (topic.as_str(), Ok(&b"1"[..]))
    );
    let stored_at = again[0].stored_at;
    assert!(
        before <= stored_at && stored_at <= after,
        "{before} {stored_at} {after} {given_back}"
    );
    inbox.acknowledge(&again);
    inbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_inbox_held_comes_again_and_is_not_given_back() {
    let (topic, group) = (format!("in-{}", unique()), format!("readers-{}", unique()));
    let options = RocketMqOptions::new(nameserver()).group(&group);
    let inbox = Inbox::connect(options.clone(), [topic.clone()]).await.unwrap();
    let publisher = Publisher::connect(nameserver()).await.unwrap();
    publisher.publish(Message::new(&topic, *b"1")).await.unwrap();
    assert_eq!(inbox.receive(1).await.unwrap().len(), 1);
    drop(inbox);

    let inbox = Inbox::connect(options, [topic.clone()]).await.unwrap();
    let again = timeout(SAFETY, inbox.receive(1))
        .await
        .expect("it comes again")
        .unwrap();
    assert_eq!(again[0].body.as_deref(), Ok(&b"1"[..]));
    let raw = Raw::new(&nameserver());
    assert_eq!(raw.sent_back(&group).await, 0);
    raw.close().await;
    inbox.acknowledge(&again);
    inbox.close().await;
}

/// How long messages are held.
fn hold() -> Duration {
    Duration::from_secs(setting("DELAYLINE_HOLD_SECONDS").unwrap_or(10))
}

/// By night it takes longer than the 15 minutes that the client lets a listener have a message by default.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_acknowledged_is_held_and_not_given_back() {
    let (topic, group) = (format!("in-{}", unique()), format!("readers-{}", unique()));
    let options = RocketMqOptions::new(nameserver()).group(&group);
    let inbox = Inbox::connect(options, [topic.clone()]).await.unwrap();
    let publisher = Publisher::connect(nameserver()).await.unwrap();
    // More than listeners hold at once.
    for number in 0..600 {
        let message = Message::new(&topic, number.to_string().into_bytes());
        publisher.publish(message).await.unwrap();
    }
    let mut held = inbox.receive(1).await.unwrap();
    tokio::time::sleep(hold()).await;
    let raw = Raw::new(&nameserver());
    assert_eq!(raw.sent_back(&group).await, 0);
    raw.close().await;
    let mut seen = BTreeSet::new();
    while seen.len() < 600 {
        seen.extend(held.iter().map(|message| message.body.clone().unwrap()));
        inbox.acknowledge(&held);
        if seen.len() < 600 {
            held = timeout(SAFETY, inbox.receive(100))
                .await
                .expect("all come")
                .unwrap();
        }
    }
    inbox.close().await;
}
