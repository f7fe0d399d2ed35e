//! Tests what senders are told.

use std::collections::BTreeMap;

use super::*;

#[tokio::test]
async fn an_answer_has_nothing_of_the_message_and_a_loss_says_why() {
    let shop = Shop::open();
    let mut secret = shop.about(1, "schedule");
    secret.properties.insert("card".to_owned(), "4000".to_owned());
    secret.body = Ok(b"4000".to_vec());
    let messages = [
        secret,
        shop.about(2, "schedule"),
        shop.about(3, "replace"),
        shop.about(4, "shift"),
        shop.about(5, "cancel"),
        shop.about(6, "cancel"),
    ];
    let mut lost = BTreeMap::new();
    for message in &messages {
        let mut asked = [Asked::read(message.clone(), message.stored_at, &shop.config)];
        batch::deal_with(&shop.scheduler, &shop.traces, &mut asked, 0)
            .await
            .unwrap();
        let reply = asked[0].reply.as_ref().unwrap();
        let told = serde_json::to_string(reply).unwrap();
        assert!(!told.contains("4000") && !told.contains("DELAYLINE_"), "{told}");
        lost.extend(reply.unscheduled.clone().map(|why| (message.id.as_str(), why)));
    }
    let expected = [("id-2", "another message of its key waits already".to_owned())];
    assert_eq!(lost, BTreeMap::from(expected));
}

/// It stays a dead task, also where its target is allowed by then.
#[tokio::test]
async fn what_was_rejected_is_answered_so_when_it_comes_again() {
    for (action, has_key) in [("schedule", false), ("replace", true)] {
        let mut shop = Shop::open();
        let waits = shop.about(1, "schedule");
        assert_eq!(shop.answers(&[&waits]).await, ["new"]);
        let mut message = shop.about(2, action);
        message
            .properties
            .insert("DELAYLINE_TOPIC".to_owned(), "soon".to_owned());
        if !has_key {
            message.properties.remove("DELAYLINE_KEY");
        }
        let before = shop.comes(&[&message]).await;
        assert_eq!(before[0]["answer"], "rejected");
        shop.config.targets = Targets::try_from(vec!["soon".to_owned()]).unwrap();
        assert_eq!(shop.comes(&[&message]).await, before);
        assert_eq!(shop.task_of(&waits).await.unwrap().state, State::Scheduled);
    }
}

/// It still comes out, also where its answer may go nowhere by then.
#[tokio::test]
async fn what_was_scheduled_is_answered_so_where_it_would_now_be_rejected() {
    let mut shop = Shop::open();
    let mut message = shop.about(1, "schedule");
    let answers_to = ("DELAYLINE_REPLY_TOPIC".to_owned(), "answers".to_owned());
    message.properties.extend([answers_to]);
    let before = shop.comes(&[&message]).await;
    assert_eq!(before[0]["answer"], "new");
    shop.config.replies = Replies::default();
    assert_eq!(shop.comes(&[&message]).await, before);
}
