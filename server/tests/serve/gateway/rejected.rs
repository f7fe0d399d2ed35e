//! Messages that the gateway rejects, and keeps.

use super::bodies::noise;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rejected_is_answered_so_and_kept_as_a_dead_task_with_its_reason() {
    let shop = Shop::open().await;
    let elsewhere = shop.scheduling("a", "1s").property("DELAYLINE_TOPIC", "payments");
    let said = shop.answers(elsewhere, "rejected").await;
    let error = said["error"].as_str().unwrap();
    assert!(error.contains("DELAYLINE_TOPIC is \"payments\""), "{error}");
    let rejected = shop
        .server
        .until("/v1/tasks?kind=delayline.rejected&state=dead", |page| {
            page["tasks"].as_array().is_some_and(|tasks| tasks.len() == 1)
        })
        .await;
    let task = &rejected["tasks"][0];
    assert_eq!(task["last_error"], error);
    assert_eq!(task["headers"]["KEYS"], "a");
    // What follows is not held up.
    shop.answers(shop.scheduling("c", "0"), "new").await;
    assert_eq!(shop.comes_out().await.keys().next(), Some("c"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_longer_than_allowed_is_rejected_and_kept_whole() {
    use std::io::Read as _;

    use base64::Engine as _;

    let shop = Shop::with("max_message_size = 1048576\n").await;
    let dead = async |count: usize| {
        let path = "/v1/tasks?kind=delayline.rejected&state=dead";
        let is_so = |page: &Value| page["tasks"].as_array().is_some_and(|tasks| tasks.len() == count);
        shop.server.until(path, is_so).await
    };
    let long = noise(1_100_000);
    let compressed = [noise(2_000), vec![b'x'; 1_100_000]].concat();
    for (count, body) in [(1, &long), (2, &compressed)] {
        let message = Message::new(shop.topic("in"), body.clone())
            .property("DELAYLINE_TOPIC", shop.topic("out"))
            .property("DELAYLINE_AFTER", "0")
            .property("DELAYLINE_REPLY_TOPIC", shop.topic("answers"));
        let said = shop.answers(message, "rejected").await;
        let error = said["error"].as_str().unwrap();
        assert!(error.contains("longer than 1048576 bytes"), "{said}");
        dead(count).await;
    }
    let mut kept = Vec::new();
    for task in dead(2).await["tasks"].as_array().unwrap() {
        let path = format!("/v1/tasks/id/{}", task["id"].as_str().unwrap());
        let task = shop.server.get(&path).await.body;
        let payload = task["payload_base64"].as_str().unwrap();
        let payload = base64::engine::general_purpose::STANDARD.decode(payload).unwrap();
        // Clients compress what is longer than 4 KiB, be it shorter then or not.
        assert_eq!(task["headers"]["DELAYLINE_COMPRESSION"], "zlib", "{task}");
        let mut body = Vec::new();
        flate2::read::ZlibDecoder::new(payload.as_slice())
            .read_to_end(&mut body)
            .unwrap();
        kept.push(body);
    }
    // Not shown where it fails.
    assert!(kept.contains(&long) && kept.contains(&compressed));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_published_when_it_is_due_is_rejected_when_it_comes() {
    let shop = Shop::open().await;
    // A broker takes it as it is, and not with what is added.
    let long = shop.scheduling("a", "0").property("long", "x".repeat(31_700));
    let said = shop.answers(long, "rejected").await;
    let error = said["error"].as_str().unwrap();
    assert!(
        error.contains("could not be published when it is due") && error.contains("properties is"),
        "{said}"
    );
    // What is answered "new" comes out.
    let fits = "x".repeat(30_000);
    shop.answers(shop.scheduling("b", "0").property("long", &fits), "new")
        .await;
    assert_eq!(shop.comes_out().await.properties["long"], fits);
}

/// Makes the row of a key one that no server can read any more.
#[cfg(feature = "sqlite")]
async fn spoil(shop: &Shop, key: &str) {
    let file = shop.server.folder.path().join("delayline.db");
    let rows = sqlx::SqlitePool::connect(file.to_str().unwrap()).await.unwrap();
    let spoilt = sqlx::query("UPDATE delayline_tasks SET headers = 'x' WHERE key = ?").bind(key);
    assert_eq!(spoilt.execute(&rows).await.unwrap().rows_affected(), 1);
    rows.close().await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_has_ended_and_cannot_be_read_is_in_the_way_of_no_message_of_its_key() {
    let shop = Shop::open().await;
    for action in ["schedule", "replace"] {
        shop.answers(shop.scheduling(action, "1h"), "new").await;
        shop.answers(shop.asking(action, "cancel"), "done").await;
        spoil(&shop, action).await;
        let again = shop.scheduling(action, "0").property("DELAYLINE_ACTION", action);
        shop.answers(again, "new").await;
        assert_eq!(shop.comes_out().await.keys().next(), Some(action));
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_can_never_be_stored_is_rejected_and_holds_up_no_other() {
    let shop = Shop::open().await;
    shop.answers(shop.scheduling("a", "1h"), "new").await;
    spoil(&shop, "a").await;
    let all = async {
        for action in ["schedule", "cancel", "run"] {
            let message = match action {
                "schedule" => shop.scheduling("a", "1h"),
                action => shop.asking("a", action),
            };
            let said = shop.answers(message, "rejected").await;
            let error = said["error"].as_str().unwrap();
            assert!(error.contains("the store cannot do it"), "{said}");
        }
        shop.answers(shop.scheduling("b", "0"), "new").await;
        assert_eq!(shop.comes_out().await.keys().next(), Some("b"));
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), all)
        .await
        .expect("nothing is held up");
}
