//! Who dies or is slow between two steps: nothing is lost, and nothing comes back.

use super::*;
use crate::store::Page;
use crate::store::redis::closed::is_closed;
use crate::store::redis::keys::{Taken, Try};

#[tokio::test]
async fn a_process_may_die_after_any_step() {
    for step in 0..=4 {
        let server = RedisServer::start();
        let store = open(&server, 2);
        let task = add(&store, named(1, KEY)).await;
        let other = open(&server, 2);
        let layouts = begin(&store, 3).await;
        let mover = moving(&store, layouts);
        let rows = read(&mover, 1).await;
        let entries = read_key(&mover, KEY).await;
        assert_eq!((rows.len(), entries.len()), (1, 1));
        if step >= 1 {
            mover.write_rows(rows.clone()).await.unwrap();
        }
        if step >= 2 {
            mover.carry_rows(rows.clone()).await.unwrap();
        }
        if step >= 3 {
            mover.write_keys(entries.clone()).await.unwrap();
        }
        if step >= 4 {
            mover.carry_keys(entries.clone()).await.unwrap();
        }
        // There, and once.
        assert_eq!(other.find(&id(1).into()).await.unwrap(), Some(task.clone()));
        let page = Page {
            kind: KIND.into(),
            state: State::Scheduled,
            after: None,
            limit: 9,
        };
        assert_eq!(other.list(&page).await.unwrap(), std::slice::from_ref(&task));
        assert_eq!(
            insert(&other, named(2, KEY)).await,
            Scheduled::Existing(task.clone())
        );
        assert!(change(&other, id(1), Verb::Cancel).await.is_done());
        // What was slow changes nothing.
        mover.carry_rows(rows).await.unwrap();
        mover.carry_keys(entries).await.unwrap();
        assert!(matches!(
            change(&other, id(1), Verb::Cancel).await,
            Answer::Finished(_)
        ));
        assert!(matches!(insert(&other, named(2, KEY)).await, Scheduled::New(_)));
        finish(&other).await;
        assert_over(&server, &other, layouts, &format!("step {step}")).await;
    }
}

/// What was written and not removed there must not be taken for what it was.
#[tokio::test]
async fn what_a_former_slot_still_says_of_a_row_that_went_on_does_not_count() {
    let server = RedisServer::start();
    let store = open(&server, 2);
    add(&store, due(1)).await;
    let layouts = begin(&store, 3).await;
    let mover = moving(&store, layouts);
    let rows = read(&mover, 1).await;
    mover.write_rows(rows).await.unwrap();
    let slot = layouts.current.slot(id(1)).tag("delayline:tasks");
    // Somebody claims it in the new slot to whom the former one did not answer.
    let mut admin = server.admin();
    let () = ask(&mut admin, &["HDEL", "{delayline:tasks}:layout", "former"]);
    let claimed = open(&server, 2).ready(&claim(1)).await.unwrap().found;
    assert_eq!(claimed.len(), 1);
    let () = ask(&mut admin, &["HSET", "{delayline:tasks}:layout", "former", "2"]);
    mover.write_rows(read(&mover, 1).await).await.unwrap();
    assert_eq!(store.ready(&claim(9)).await.unwrap().found, []);
    let page = Page {
        kind: KIND.into(),
        state: State::Scheduled,
        after: None,
        limit: 9,
    };
    assert_eq!(store.list(&page).await.unwrap(), []);
    assert!(store.kinds(State::Scheduled).await.unwrap().is_empty());
    let rows: u64 = ask(&mut admin, &["HLEN", &format!("{slot}:rows")]);
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn what_was_removed_meanwhile_does_not_come_back() {
    for (before, after) in [(2, 3), (2, 1)] {
        let server = RedisServer::start();
        let store = open(&server, before).keep_history(NONE);
        add(&store, named(1, KEY)).await;
        let layouts = begin(&store, after).await;
        let slow = moving(&store, layouts);
        let (rows, entries) = (read(&slow, 1).await, read_key(&slow, KEY).await);
        let other = open(&server, before).keep_history(NONE);
        assert!(change(&other, id(1), Verb::Cancel).await.is_done());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(other.purge(9).await.unwrap(), 1);
        slow.carry_rows(rows.clone()).await.unwrap();
        slow.carry_keys(entries.clone()).await.unwrap();
        assert_eq!(other.find(&id(1).into()).await.unwrap(), None);
        assert_consistent(&server, layouts.current, "while it was under way");
        finish(&other).await;
        // And after it.
        slow.carry_rows(rows.clone()).await.unwrap();
        slow.carry_keys(entries.clone()).await.unwrap();
        assert_over(&server, &other, layouts, "after it").await;
        assert_eq!(other.find(&id(1).into()).await.unwrap(), None);
        // And after the next one has begun.
        begin(&other, 5).await;
        assert!(is_closed(&slow.carry_rows(rows).await.unwrap_err()));
        finish(&other).await;
        assert_eq!(other.find(&id(1).into()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn tries_end_with_their_epoch() {
    let server = RedisServer::start();
    let store = open(&server, 16);
    let layout = store.database.layout().await.unwrap();
    let gone = dead(&store, 1, "dead").await;
    let (kind, key) = (KIND.into(), KEY.into());
    let intent = Try::new(&store.database, layout, id(2), &kind, &key);
    intent.intend(&named(2, KEY)).await.unwrap();
    assert!(matches!(intent.obtain(None).await.unwrap(), Taken::Obtained));
    let dead_key = "dead".into();
    let mark = Try::new(&store.database, layout, gone.id, &kind, &dead_key);
    assert!(mark.mark(gone.version).await.unwrap());
    mark.obtain(None).await.unwrap();
    let other = open(&server, 16);
    let layouts = begin(&other, 5).await;
    let now = When::After(NONE);
    assert!(is_closed(&intent.activate(now, 0).await.unwrap_err()));
    // It is known what came of it.
    intent.withdraw().await.unwrap();
    assert_eq!(store.find(&(KIND, KEY).into()).await.unwrap(), None);
    assert_eq!(store.find(&id(2).into()).await.unwrap(), None);
    assert_eq!(store.find(&gone.id.into()).await.unwrap(), Some(gone.clone()));
    add(&store, named(2, KEY)).await;
    let redrive = Verb::Redrive { look_in: LONG };
    assert!(change(&store, gone.id, redrive).await.is_done());
    finish(&other).await;
    assert_over(&server, &other, layouts, "tries").await;
}
