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
        let mut asked = [Asked::read(message, message.stored_at, &shop.config)];
        batch::deal_with(&shop.scheduler, &shop.traces, &mut asked)
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
