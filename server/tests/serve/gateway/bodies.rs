//! Bodies of messages: as long as brokers take, and new ones.

use super::*;

/// Bytes that cannot be compressed.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_as_long_as_brokers_take_comes_out_as_it_was_sent() {
    let shop = Shop::open().await;
    let mut before = Vec::new();
    for body in [noise((4 << 20) - 4_096), vec![b'x'; 4 << 20]] {
        let message = shop
            .message(body.clone())
            .property("DELAYLINE_TOPIC", shop.topic("out"))
            .property("DELAYLINE_AFTER", "0");
        // A busy broker may take so much later than within the time of one call: then it comes out once more.
        let reasons = ["no answer in time", "the server is busy"];
        shop.send_again_where(message, &reasons).await;
        let mut out = shop.comes_out().await.body.unwrap();
        while out == before {
            out = shop.comes_out().await.body.unwrap();
        }
        // Not shown where it fails.
        assert!(out == body);
        before = body;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_out_with_the_body_that_it_was_given_last() {
    let mut shop = Shop::with("max_message_size = 1048576\n").await;
    let editing = |shop: &Shop, body: Vec<u8>| {
        let edit = shop.saying(body, "a", "edit").tag("other");
        edit.property("source", "desk").sharding_key("one queue")
    };
    shop.answers(editing(&shop, b"0".into()), "not_found").await;
    let source = "x".repeat(30_000);
    let first = shop.scheduling("a", "1h").tag("cancel");
    let first = first.property("source", &source).sharding_key("one queue");
    let new = shop.answers(first, "new").await;
    // A broker takes it as it is, and not with the properties of the one that waits.
    let said = shop.answers(editing(&shop, noise(1_030_000)), "rejected").await;
    let error = said["error"].as_str().unwrap();
    assert!(error.contains("could not be published when it is due"), "{said}");
    for body in ["1", "2"] {
        let done = shop.answers(editing(&shop, body.into()), "done").await;
        assert_eq!(done["task"]["due_at"], new["task"]["due_at"]);
    }
    // All of these come again, and change nothing.
    shop.server.kill_and_start();
    shop.send(shop.asking("a", "run").sharding_key("one queue")).await;
    let out = shop.comes_out().await;
    assert_eq!(
        (out.body.as_deref(), out.tag()),
        (Ok(b"2".as_slice()), Some("cancel"))
    );
    assert_eq!(out.properties["source"], source);
    assert_eq!(
        out.properties["DELAYLINE_ID"],
        new["task"]["id"].as_str().unwrap()
    );
}
