//! Tests messages that give another one a new body.

use super::*;

#[tokio::test]
async fn an_edit_changes_the_body_alone_or_with_a_time() {
    let shop = Shop::open();
    let mut first = shop.about(1, "schedule");
    first.properties.insert("source".to_owned(), "shop".to_owned());
    let mut edit = shop.about(2, "edit");
    edit.properties.insert("source".to_owned(), "desk".to_owned());
    assert_eq!(shop.answers(&[&first, &edit]).await, ["new", "done"]);
    let task = shop.task_of(&first).await.unwrap();
    let due = |task: &Task| task.due_at.as_millis() - shop.began;
    assert_eq!((&*task.payload, due(&task)), (b"2".as_slice(), HOURS + 1));
    assert_eq!(task.headers["source"], "shop", "its properties are its own");

    let moving = [("DELAYLINE_AFTER", "5h")];
    let both = shop.verb(3, "edit", &first, &moving);
    assert_eq!(shop.answers(&[&both, &both]).await, ["done", "done"]);
    let task = shop.task_of(&first).await.unwrap();
    assert_eq!((&*task.payload, due(&task)), (b"3".as_slice(), 5 * HOURS + 3));
    assert_eq!(task.version, 3);
}

#[tokio::test]
async fn an_edit_is_for_what_was_there_when_it_was_sent() {
    let shop = Shop::open();
    assert_eq!(shop.answers(&[&shop.about(1, "edit")]).await, ["not_found"]);
    assert_eq!(shop.answers(&[&shop.about(2, "cancel")]).await, ["not_found"]);
    // The mark of a cancel is no message.
    assert_eq!(shop.answers(&[&shop.about(3, "edit")]).await, ["not_found"]);
    let (early, second) = (shop.about(4, "edit"), shop.about(5, "schedule"));
    assert_eq!(shop.answers(&[&second, &early]).await, ["new", "conflict"]);
    let (late, cancel) = (shop.about(7, "edit"), shop.about(6, "cancel"));
    assert_eq!(shop.answers(&[&cancel, &late]).await, ["done", "finished"]);
    assert_eq!(shop.task_of(&second).await.unwrap().payload, b"5");
}

#[tokio::test]
async fn an_edit_whose_body_cannot_be_kept_is_rejected_also_where_there_is_nothing_to_edit() {
    let shop = Shop::open();
    let (mut empty, mut garbled) = (shop.about(2, "edit"), shop.about(3, "edit"));
    empty.body = Ok(Vec::new());
    garbled.body = Err("it cannot be decompressed".to_owned());
    for (message, said) in [
        (&empty, "its body is empty"),
        (&garbled, "it cannot be decompressed"),
    ] {
        let reply = shop.comes(&[message]).await.remove(0);
        assert_eq!(reply["answer"], "rejected");
        let error = reply["error"].as_str().unwrap();
        assert!(error.contains(said), "{error}");
        let kept = shop.task_of(message).await.unwrap();
        assert_eq!(kept.kind.as_str(), "delayline.rejected");
    }
}
