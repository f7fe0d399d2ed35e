//! Tests messages that come again, or overtake each other, over a store in memory.

mod answers;
mod editing;
mod sent_again;

use std::sync::Arc;
use std::time::Duration;

use delayline::rocketmq::Received;
use delayline::store::{History, MemoryStore};
use delayline::{Scheduler, State, Task, Timestamp};
use serde_json::Value;

use super::asked::Asked;
use super::batch;
use super::origin::{Origin, id_of};
use crate::serve::config::{self, Replies, Route, Targets};
use crate::serve::traces::Traces;

/// In ms.
const HOURS: i64 = 3_600_000;

struct Shop {
    scheduler: Scheduler,
    traces: Traces,
    config: config::Gateway,
    began: i64,
}

impl Shop {
    fn open() -> Self {
        let scheduler = Scheduler::builder(Arc::new(MemoryStore::new()))
            .history(History::Changes)
            .build()
            .unwrap();
        let began = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Self {
            scheduler: scheduler.by("gateway:g"),
            traces: Traces::start(None).unwrap(),
            config: config::Gateway {
                inbox: "in".to_owned(),
                targets: Targets::try_from(vec!["out".to_owned()]).unwrap(),
                replies: Replies::try_from(vec!["answers".to_owned()]).unwrap(),
                routes: [("routed".to_owned(), Route::to("out"))].into(),
                ..config::Gateway::default()
            },
            began: i64::try_from(began.as_millis()).unwrap(),
        }
    }

    /// Makes the message that was stored as the `number`th.
    fn message(&self, number: u32, properties: &[(&str, &str)]) -> Received {
        let at = Timestamp::from_millis(self.began + i64::from(number));
        let mut message = Received::new("in", format!("id-{number}"), at, number.to_string());
        (message.broker, message.place) = ("a".to_owned(), Some(number.into()));
        for (name, value) in properties {
            message.properties.insert((*name).to_owned(), (*value).to_owned());
        }
        message
    }

    /// Makes one about the key k, of another hour each.
    fn about(&self, number: u32, action: &str) -> Received {
        let after = format!("{number}h");
        let mut properties = vec![("DELAYLINE_KEY", "k"), ("DELAYLINE_ACTION", action)];
        match action {
            "schedule" | "replace" => {
                properties.extend([("DELAYLINE_TOPIC", "out"), ("DELAYLINE_AFTER", &*after)]);
            }
            "reschedule" | "shift" => properties.push(("DELAYLINE_AFTER", &*after)),
            _ => {}
        }
        self.message(number, &properties)
    }

    /// Makes one about the task of another.
    fn verb(&self, number: u32, action: &str, of: &Received, more: &[(&str, &str)]) -> Received {
        let mut properties = vec![("DELAYLINE_ACTION", action), ("DELAYLINE_MESSAGE_ID", &*of.id)];
        properties.extend(more);
        self.message(number, &properties)
    }

    /// Processes messages that come together; returns the answers.
    async fn comes(&self, messages: &[&Received]) -> Vec<Value> {
        let mut asked: Vec<_> = messages
            .iter()
            .map(|&message| Asked::read(message.clone(), message.stored_at, &self.config))
            .collect();
        batch::deal_with(&self.scheduler, &self.traces, &mut asked, 0)
            .await
            .unwrap();
        let reply = |asked: &Asked| serde_json::to_value(asked.reply.as_ref().unwrap()).unwrap();
        asked.iter().map(reply).collect()
    }

    async fn answers(&self, messages: &[&Received]) -> Vec<String> {
        let word = |reply: Value| reply["answer"].as_str().unwrap().to_owned();
        self.comes(messages).await.into_iter().map(word).collect()
    }

    /// Finds the task of a message.
    async fn task_of(&self, message: &Received) -> Option<Task> {
        let id = id_of(&message.topic, &message.id);
        self.scheduler.find(id).await.unwrap()
    }

    async fn of_key(&self, key: &str) -> Option<Task> {
        self.scheduler.find(("message", key)).await.unwrap()
    }

    /// Finds all tasks of some messages, and of the key k.
    async fn rows(&self, messages: &[Received]) -> Vec<Option<Task>> {
        let mut rows = vec![self.of_key("k").await];
        for message in messages {
            rows.push(self.task_of(message).await);
        }
        rows
    }
}

#[tokio::test]
async fn a_cancel_that_comes_again_leaves_what_was_scheduled_later() {
    let shop = Shop::open();
    let first = shop.about(1, "schedule");
    let cancel = shop.about(2, "cancel");
    let second = shop.about(3, "schedule");
    let said = shop.answers(&[&first, &cancel, &second]).await;
    assert_eq!(said, ["new", "done", "new"]);
    let said = shop.answers(&[&first, &cancel, &second]).await;
    assert_eq!(said, ["new", "conflict", "new"]);
    let task = shop.task_of(&second).await.unwrap();
    assert_eq!((task.state, task.version), (State::Scheduled, 1));
}

/// Wherever a repetition of messages begins: it changes nothing, not even for a moment.
#[tokio::test]
async fn messages_that_come_again_change_nothing() {
    const ACTIONS: [&str; 7] = [
        "schedule",
        "replace",
        "reschedule",
        "shift",
        "edit",
        "run",
        "cancel",
    ];
    let cases = |first, free: u32| {
        let action = |number: usize, place: u32| ACTIONS[number / ACTIONS.len().pow(place) % ACTIONS.len()];
        let rest = move |number: usize| (0..free).map(move |place| action(number, place));
        (0..ACTIONS.len().pow(free)).map(move |number| [first].into_iter().chain(rest(number)))
    };
    for actions in cases("schedule", 3).chain(cases("cancel", 2)) {
        let shop = Shop::open();
        let actions: Vec<_> = actions.collect();
        let messages: Vec<_> = (1..)
            .zip(&actions)
            .map(|(n, action)| shop.about(n, action))
            .collect();
        let mut answers = Vec::new();
        for message in &messages {
            answers.extend(shop.answers(&[message]).await);
            // Which of two finished tasks of a key is newer is known to the millisecond.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let rows = shop.rows(&messages).await;
        for from in 0..messages.len() {
            for (message, before) in messages.iter().zip(&answers).skip(from) {
                let again = shop.answers(&[message]).await;
                let case = format!("{actions:?} were answered {answers:?}; {} again", message.id);
                assert_eq!(shop.rows(&messages).await, rows, "{case}");
                // A done message is never answered as if it had not been, unless a later message undid it.
                let may_be = match before.as_str() {
                    "new" | "replaced" => ["new", "conflict"],
                    "done" => ["done", "conflict"],
                    "not_found" => ["not_found", "conflict"],
                    "finished" => ["finished", "conflict"],
                    other => [other, "conflict"],
                };
                assert!(may_be.contains(&again[0].as_str()), "{again:?}: {case}");
            }
        }
    }
}

/// Wherever a server is killed, and wherever another goes on: the end is the same.
#[tokio::test]
async fn it_ends_the_same_wherever_a_server_is_killed() {
    let actions = [
        "schedule",
        "shift",
        "replace",
        "cancel",
        "schedule",
        "shift",
        "edit",
        "reschedule",
        "shift",
    ];
    let end = async |order: &[usize]| {
        let shop = Shop::open();
        let messages: Vec<_> = (1..)
            .zip(actions)
            .map(|(n, action)| shop.about(n, action))
            .collect();
        for &number in order {
            shop.answers(&[&messages[number]]).await;
        }
        let task = shop.of_key("k").await.unwrap();
        let due = task.due_at.as_millis() - shop.began;
        (task.state, due, task.payload, task.id)
    };
    let all: Vec<_> = (0..actions.len()).collect();
    let once = end(&all).await;
    assert_eq!((once.0, once.1), (State::Scheduled, (8 + 9) * HOURS + 8));
    assert_eq!(once.2, b"7");
    for killed_after in 1..all.len() {
        for from in 0..killed_after {
            let order: Vec<_> = (0..killed_after).chain(from..all.len()).collect();
            assert_eq!(end(&order).await, once, "{order:?}");
        }
    }
}

/// One is paused with messages in hand, the other has been given the queue: both process them, one after the other or
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_with_the_same_messages_come_to_one_end() {
    let actions = [
        "schedule",
        "shift",
        "replace",
        "cancel",
        "schedule",
        "shift",
        "edit",
        "run",
        "reschedule",
        "shift",
    ];
    for _ in 0..50 {
        let shop = Arc::new(Shop::open());
        let messages: Vec<_> = (1..)
            .zip(actions)
            .map(|(n, action)| shop.about(n, action))
            .collect();
        let messages = Arc::new(messages);
        let servers = [(); 3].map(|()| {
            let (shop, messages) = (Arc::clone(&shop), Arc::clone(&messages));
            tokio::spawn(async move {
                for message in &*messages {
                    shop.answers(&[message]).await;
                    tokio::task::yield_now().await;
                }
            })
        });
        for server in servers {
            server.await.unwrap();
        }
        let task = shop.of_key("k").await.unwrap();
        let due = task.due_at.as_millis() - shop.began;
        assert_eq!((task.state, due), (State::Scheduled, (9 + 10) * HOURS + 9));
        assert_eq!((task.id, &*task.payload), (id_of("in", "id-5"), b"7".as_slice()));
    }
}

#[tokio::test]
async fn a_cancel_is_for_all_that_were_sent_before_it_and_for_nothing_else() {
    let shop = Shop::open();
    let early = [1, 2, 3].map(|number| shop.about(number, "schedule"));
    let (first, cancel) = (shop.about(9, "cancel"), shop.about(10, "cancel"));
    // A repetition counts for what was sent up to it.
    assert_eq!(shop.answers(&[&first]).await, ["not_found"]);
    assert_eq!(shop.answers(&[&cancel, &first]).await, ["not_found", "not_found"]);
    assert_eq!(
        shop.answers(&[&early[0], &early[1], &early[0]]).await,
        ["cancelled"; 3]
    );
    // The messages that follow know nothing of it.
    let late = shop.about(11, "schedule");
    assert_eq!(shop.answers(&[&late]).await, ["new"]);
    let said = shop.comes(&[&early[2], &early[0], &cancel]).await;
    let words: Vec<_> = said
        .iter()
        .map(|reply| reply["answer"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["existing", "existing", "conflict"]);
    assert_eq!(shop.task_of(&late).await.unwrap().state, State::Scheduled);
    // Nor does a cancel apply to messages that were not sent yet: cancelling in advance cancels nothing.
    assert_eq!(
        shop.answers(&[&shop.about(12, "cancel"), &shop.about(13, "schedule")])
            .await,
        ["done", "new"]
    );
}

/// A server was killed after it had cancelled a task for a message, and before that was written.
#[tokio::test]
async fn a_message_that_was_interrupted_takes_the_place_that_it_has_made() {
    for (before, message, answer) in [("schedule", "replace", "replaced"), ("cancel", "schedule", "new")] {
        let shop = Shop::open();
        shop.answers(&[&shop.about(1, before)]).await;
        let message = shop.about(2, message);
        let by_message = shop.scheduler.because(&Origin::of(&message).to_string());
        let made = by_message.cancel(("message", "k")).await.unwrap();
        assert!(made.is_done());
        assert_eq!(shop.answers(&[&message, &message]).await, [answer, "new"]);
        assert_eq!(shop.task_of(&message).await.unwrap().state, State::Scheduled);
    }
}

/// What it stores then has a smaller place in its log than what it stored before.
#[tokio::test]
async fn what_a_broker_stores_after_it_lost_its_log_is_later_than_what_it_stored_before() {
    let shop = Shop::open();
    let before = |number, action: &str| {
        let mut message = shop.about(number, action);
        message.place = Some(u64::from(number) + 1_000_000);
        message
    };
    let (first, shift, early) = (before(1, "schedule"), before(2, "shift"), before(3, "cancel"));
    assert_eq!(shop.answers(&[&first, &shift]).await, ["new", "done"]);
    let (cancel, second) = (shop.about(6_000, "cancel"), shop.about(6_001, "schedule"));
    let said = shop.answers(&[&cancel, &second, &early, &cancel]).await;
    assert_eq!(said, ["done", "new", "conflict", "conflict"]);
    assert_eq!(shop.task_of(&second).await.unwrap().state, State::Scheduled);
}

/// A rejected message has cancelled nothing.
#[tokio::test]
async fn a_message_whose_body_cannot_be_kept_replaces_nothing() {
    for body in [Ok(Vec::new()), Err("it cannot be decompressed".to_owned())] {
        let shop = Shop::open();
        let (first, mut bad) = (shop.about(1, "schedule"), shop.about(2, "replace"));
        bad.body = body;
        assert_eq!(shop.answers(&[&first, &bad]).await, ["new", "rejected"]);
        assert_eq!(shop.task_of(&first).await.unwrap().state, State::Scheduled);
        let kept = shop.task_of(&bad).await.unwrap();
        assert_eq!(kept.kind.as_str(), "delayline.rejected");
    }
}

#[tokio::test]
async fn what_a_broker_held_back_was_sent_before_it_came() {
    let shop = Shop::open();
    assert_eq!(shop.answers(&[&shop.about(9, "cancel")]).await, ["not_found"]);
    let mut held = shop.about(20, "schedule");
    held.born_at = Timestamp::from_millis(shop.began + 5);
    held.properties.insert("DELAY".to_owned(), "3".to_owned());
    assert_eq!(shop.answers(&[&held]).await, ["cancelled"]);
}

#[tokio::test]
async fn messages_without_a_key_are_all_scheduled_and_changed_by_their_ids() {
    let shop = Shop::open();
    let scheduled = |number| {
        let to = [
            ("DELAYLINE_TOPIC", "out"),
            ("DELAYLINE_AFTER", "1h"),
            ("KEYS", "order-1"),
        ];
        shop.message(number, &to)
    };
    let (one, other, late) = (scheduled(1), scheduled(2), scheduled(3));
    let shift = shop.verb(4, "shift", &one, &[("DELAYLINE_AFTER", "1h")]);
    let cancel = shop.verb(5, "cancel", &other, &[("KEYS", "order-1")]);
    let overtaking = shop.verb(6, "cancel", &late, &[]);
    for _ in 0..2 {
        shop.answers(&[&one, &other, &shift, &cancel, &overtaking]).await;
        let task = shop.task_of(&one).await.unwrap();
        assert_eq!(task.due_at.as_millis() - shop.began, 2 * HOURS + 1);
        assert_eq!(shop.task_of(&other).await.unwrap().state, State::Cancelled);
    }
    assert_eq!(shop.answers(&[&late, &late]).await, ["cancelled"; 2]);
    // Those of one batch about one task are processed in their order, by whichever name.
    let keyed = shop.about(20, "schedule");
    let by_id = shop.verb(21, "cancel", &keyed, &[]);
    let by_key = shop.about(22, "schedule");
    assert_eq!(
        shop.answers(&[&keyed, &by_id, &by_key]).await,
        ["new", "done", "new"]
    );
}

/// Only the store has the key of a message that came earlier.
#[tokio::test]
async fn a_verb_by_id_is_in_the_order_of_the_key_of_a_message_that_came_earlier() {
    let shop = Shop::open();
    let first = shop.about(1, "schedule");
    assert_eq!(shop.answers(&[&first]).await, ["new"]);
    let cancel = shop.verb(3, "cancel", &first, &[]);
    let said = shop
        .answers(&[&shop.about(2, "shift"), &cancel, &shop.about(4, "schedule")])
        .await;
    assert_eq!(said, ["done", "done", "new"]);
}

#[tokio::test]
async fn a_route_has_keys_of_its_own() {
    let shop = Shop::open();
    let routed = |number, action: &str| {
        let mut message = shop.about(number, action);
        message.topic = "routed".to_owned();
        message
    };
    let (inbox, route) = (shop.about(1, "schedule"), routed(2, "schedule"));
    assert_eq!(shop.answers(&[&inbox, &route]).await, ["new", "new"]);
    assert_eq!(shop.answers(&[&routed(3, "cancel")]).await, ["done"]);
    assert_eq!(shop.task_of(&inbox).await.unwrap().state, State::Scheduled);
    let task = shop.task_of(&route).await.unwrap();
    assert_eq!(
        (task.kind.as_str(), task.state),
        ("message.routed", State::Cancelled)
    );
}
