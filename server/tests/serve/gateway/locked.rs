//! Messages about rows that another session has locked.

use sqlx::{Connection as _, PgConnection};

use super::*;
use crate::database::Database;
use crate::stores::migrate;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_row_is_locked_waits_with_those_of_its_key_and_holds_up_no_other() {
    let url = Database::Postgres.fresh().await;
    migrate("postgres", &url);
    let shop = Shop::configured(|config| format!("[store]\nurl = \"{url}\"\n{config}")).await;
    let of_one_queue = |message: Message| message.sharding_key("one queue");
    let first = shop
        .answers(of_one_queue(shop.scheduling("a", "1h")), "new")
        .await;
    let mut session = PgConnection::connect(&url).await.unwrap();
    let mut locking = session.begin().await.unwrap();
    let locked = sqlx::query("SELECT id FROM delayline_tasks WHERE key = 'a' FOR UPDATE");
    assert_eq!(locked.fetch_all(&mut *locking).await.unwrap().len(), 1);
    let all = async {
        let first = first["task"]["id"].as_str();
        shop.send(of_one_queue(shop.asking("a", "cancel"))).await;
        // It would be existing before the cancel.
        shop.send(of_one_queue(shop.scheduling("a", "2h"))).await;
        for key in ["b", "c", "d"] {
            let others = shop
                .answers(of_one_queue(shop.scheduling(key, "1h")), "new")
                .await;
            assert_eq!(others["task"]["key"], key);
            shop.answers(of_one_queue(shop.asking(key, "cancel")), "done")
                .await;
        }
        let waits = shop.server.get("/v1/tasks/message/a").await.body;
        assert_eq!(
            (waits["id"].as_str(), &waits["state"]),
            (first, &"scheduled".into())
        );
        locking.rollback().await.unwrap();
        let mut said = Vec::new();
        for _ in 0..2 {
            let answer = received(&shop.answers).await;
            assert_eq!(answer.keys().next(), Some("a"));
            let body: Value = serde_json::from_slice(answer.body.as_ref().unwrap()).unwrap();
            said.push(body["answer"].as_str().unwrap().to_owned());
        }
        // The answers themselves may overtake each other.
        said.sort();
        assert_eq!(said, ["done", "new"]);
        let second = shop.server.get("/v1/tasks/message/a").await.body;
        assert_ne!(second["id"].as_str(), first);
    };
    tokio::time::timeout(Duration::from_secs(120), all)
        .await
        .expect("nothing is held up");
}
