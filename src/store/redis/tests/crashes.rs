//! Callers that die between the steps by which a row gets its key, or are overtaken there.

use super::consistent::{ask, assert_consistent};
use super::*;
use crate::redis::Layout;
use crate::store::Page;
use crate::store::redis::keys::{Entry, Taken, Try};
use crate::store::redis::{keys, purge};
use crate::{Key, Kind, Target};

const SLOTS: u16 = 16;
/// One whose slot is not that of any row here.
const KEY: &str = "d";

struct Setup {
    server: RedisServer,
    store: RedisStore,
    layout: Layout,
    kind: Kind,
    key: Key,
}

impl Setup {
    async fn new() -> Self {
        let server = RedisServer::start();
        let store = open(&server, SLOTS);
        let layout = store.database.layout().await.unwrap();
        let slot = keys::slot_of(layout, &KIND.into(), &KEY.into());
        assert!((1..=2).all(|n| layout.slot(id(n)) != slot), "choose another key");
        Self {
            server,
            store,
            layout,
            kind: KIND.into(),
            key: KEY.into(),
        }
    }

    fn attempt(&self, n: u64) -> Try<'_> {
        Try::new(&self.store.database, self.layout, id(n), &self.kind, &self.key)
    }

    async fn find(&self, target: impl Into<Target>) -> Option<Task> {
        self.store.find(&target.into()).await.unwrap()
    }

    /// Asserts that nothing shows the row of an id, which is an intent.
    async fn assert_unseen(&self, n: u64) {
        let store = &self.store;
        assert_eq!(self.find(id(n)).await, None);
        assert_eq!(self.find((KIND, KEY)).await, None);
        assert_eq!(change(store, id(n), Verb::Cancel).await, Answer::NotFound);
        let by_key = Change {
            target: (KIND, KEY).into(),
            verb: Verb::Cancel,
            expect: Expect::Anything,
        };
        assert_eq!(
            store.change(vec![by_key]).await.unwrap().found,
            [Answer::NotFound]
        );
        for version in [0, 1] {
            let wake = Wake {
                id: id(n),
                kind: KIND.into(),
                version,
            };
            assert_eq!(store.arrive(&[wake], &claim(9)).await.unwrap().found.stale, 1);
        }
        assert_eq!(store.ready(&claim(9)).await.unwrap().found, []);
        let swept = store.sweep(&claim(9), &sweep()).await.unwrap().found;
        assert_eq!(swept, crate::store::Looked::default());
        for state in [State::Scheduled, State::Running, State::Done, State::Dead] {
            let page = Page {
                kind: KIND.into(),
                state,
                after: None,
                limit: 9,
            };
            assert_eq!(store.list(&page).await.unwrap(), []);
        }
        assert_eq!(store.purge(9).await.unwrap(), 0);
    }

    async fn activate(&self, attempt: &Try<'_>) -> Option<Task> {
        let activated = attempt.activate(When::After(NONE), 0).await.unwrap();
        activated.map(|(_, task)| task)
    }
}

#[tokio::test]
async fn an_intent_that_was_left_is_unseen_and_in_nobodys_way() {
    let setup = Setup::new().await;
    assert_eq!(setup.attempt(1).intend(&named(1, KEY)).await.unwrap(), None);
    setup.assert_unseen(1).await;
    // Its id can be had, and its key.
    add(&setup.store, named(1, KEY)).await;
    assert_consistent(&setup.server, setup.layout, "the id was taken");

    let setup = Setup::new().await;
    setup.attempt(1).intend(&named(1, KEY)).await.unwrap();
    add(&setup.store, named(2, KEY)).await;
    assert_eq!(setup.find((KIND, KEY)).await.unwrap().id, id(2));
}

#[tokio::test]
async fn an_intent_that_was_left_with_its_key_is_unseen_and_gives_it_up() {
    let setup = Setup::new().await;
    let left = setup.attempt(1);
    left.intend(&named(1, KEY)).await.unwrap();
    assert!(matches!(left.obtain(None).await.unwrap(), Taken::Obtained));
    setup.assert_unseen(1).await;
    let task = add(&setup.store, named(2, KEY)).await;
    assert_eq!(setup.find((KIND, KEY)).await, Some(task));
    // It was not dead, only slow.
    assert_eq!(setup.activate(&left).await, None);
    assert_consistent(&setup.server, setup.layout, "the key was taken");
}

#[tokio::test]
async fn an_id_that_went_to_another_key_is_not_in_the_way_of_the_first() {
    let setup = Setup::new().await;
    let left = setup.attempt(1);
    left.intend(&named(1, KEY)).await.unwrap();
    left.obtain(None).await.unwrap();
    let other = add(&setup.store, named(1, "another key")).await;
    assert_eq!(setup.find((KIND, KEY)).await, None);
    add(&setup.store, named(2, KEY)).await;
    assert_eq!(setup.activate(&left).await, None);
    assert_eq!(setup.find(id(1)).await, Some(other));
    assert_consistent(&setup.server, setup.layout, "each has its key");
}

#[tokio::test]
async fn an_intent_that_was_left_is_removed_after_a_minute() {
    let setup = Setup::new().await;
    let left = setup.attempt(1);
    left.intend(&named(1, KEY)).await.unwrap();
    setup.store.sweep(&claim(9), &sweep()).await.unwrap();
    let tag = setup.layout.slot(id(1)).tag("delayline:tasks");
    let mut admin = setup.server.admin();
    let rows = format!("{tag}:rows");
    assert_eq!(ask::<u64>(&mut admin, &["HLEN", &rows]), 1);
    let mut age = redis::cmd("ZINCRBY");
    age.arg(format!("{tag}:intents"))
        .arg(-60_001)
        .arg(id(1).as_bytes());
    age.exec(&mut admin).unwrap();
    let another = open(&setup.server, SLOTS);
    another.sweep(&claim(9), &sweep()).await.unwrap();
    assert_eq!(ask::<u64>(&mut admin, &["HLEN", &rows]), 0);
    assert_eq!(setup.activate(&left).await, None);
    assert_consistent(&setup.server, setup.layout, "the intent was removed");
}

#[tokio::test]
async fn who_saw_a_key_free_before_it_was_taken_anew_does_not_get_it() {
    let setup = Setup::new().await;
    let first = setup.attempt(1);
    first.intend(&named(1, KEY)).await.unwrap();
    first.obtain(None).await.unwrap();
    let second = setup.attempt(2);
    second.intend(&named(2, KEY)).await.unwrap();
    let entry = Entry::read(&setup.store.database, setup.layout, &setup.kind, &setup.key);
    let stamp = entry.await.unwrap().stamp;
    // The second finds the first on its way, ends its try, and pauses.
    let mut looked = second.look(id(1), None).await.unwrap();
    assert_eq!(looked.number().unwrap(), 0);
    assert_eq!(setup.activate(&first).await, None);
    // The first tries again and has the key. The second must not take it with what it saw before.
    let task = add(&setup.store, named(1, KEY)).await;
    let other = second.take_from(&stamp, false).await.unwrap();
    assert_eq!(
        other.map(|(_, id)| id),
        Some(id(1)),
        "the entry was changed since"
    );
    let Taken::By(1, live) = second.obtain(None).await.unwrap() else {
        panic!("the first is live");
    };
    assert_eq!(*live, task);
    second.withdraw().await.unwrap();
    assert_consistent(&setup.server, setup.layout, "the first has it");
}

#[tokio::test]
async fn of_two_tries_with_one_id_the_later_counts() {
    let setup = Setup::new().await;
    let (first, second) = (setup.attempt(1), setup.attempt(1));
    first.intend(&named(1, KEY)).await.unwrap();
    second.intend(&named(1, KEY)).await.unwrap();
    first.obtain(None).await.unwrap();
    assert_eq!(setup.activate(&first).await, None);
    // Who has lost its try takes nothing away from the other.
    first.withdraw().await.unwrap();
    second.obtain(None).await.unwrap();
    let task = setup.activate(&second).await.unwrap();
    assert_eq!((task.state, task.version), (State::Scheduled, 1));
    assert_eq!(
        insert(&setup.store, named(1, KEY)).await,
        Scheduled::Existing(task)
    );
    // What is late takes nothing back.
    first.withdraw().await.unwrap();
    second.withdraw().await.unwrap();
    assert!(setup.find(id(1)).await.is_some());
    assert_consistent(&setup.server, setup.layout, "one row");
}

#[tokio::test]
async fn a_mark_that_was_left_is_unseen_and_in_nobodys_way() {
    let setup = Setup::new().await;
    let task = dead(&setup.store, 1, KEY).await;
    let left = setup.attempt(1);
    assert!(!left.mark(task.version - 1).await.unwrap());
    assert!(left.mark(task.version).await.unwrap());
    assert_eq!(setup.find(id(1)).await, Some(task.clone()));
    assert_eq!(setup.find((KIND, KEY)).await, Some(task.clone()));
    assert_eq!(setup.store.purge(9).await.unwrap(), 0);
    left.obtain(None).await.unwrap();
    // Another row takes the key, and with it the mark away.
    let other = add(&setup.store, named(2, KEY)).await;
    assert_eq!(setup.activate(&left).await, None);
    assert_eq!(setup.find(id(1)).await, Some(task.clone()));
    let redrive = Verb::Redrive { look_in: LONG };
    assert_eq!(
        change(&setup.store, id(1), redrive.clone()).await,
        Answer::Conflict(other.clone())
    );
    assert!(change(&setup.store, id(2), Verb::Cancel).await.is_done());
    assert!(change(&setup.store, id(1), redrive).await.is_done());
    assert_consistent(&setup.server, setup.layout, "it was redriven");
}

#[tokio::test]
async fn a_mark_that_was_left_is_taken_away_after_a_minute() {
    let setup = Setup::new().await;
    let task = dead(&setup.store, 1, KEY).await;
    let left = setup.attempt(1);
    assert!(left.mark(task.version).await.unwrap());
    let tag = setup.layout.slot(id(1)).tag("delayline:tasks");
    let mut age = redis::cmd("ZINCRBY");
    age.arg(format!("{tag}:intents"))
        .arg(-60_001)
        .arg(id(1).as_bytes());
    age.exec(&mut setup.server.admin()).unwrap();
    open(&setup.server, SLOTS)
        .sweep(&claim(9), &sweep())
        .await
        .unwrap();
    assert_consistent(&setup.server, setup.layout, "no mark is left");
    assert_eq!(setup.activate(&left).await, None);
    assert_eq!(setup.find(id(1)).await, Some(task));
}

#[tokio::test]
async fn a_key_that_was_taken_while_its_row_was_removed_stays_taken() {
    let setup = Setup::new().await;
    let store = setup.store.clone().keep_history(NONE);
    add(&store, named(1, KEY)).await;
    assert!(change(&store, id(1), Verb::Cancel).await.is_done());
    let stamp = Entry::read(&store.database, setup.layout, &setup.kind, &setup.key);
    let stamp = stamp.await.unwrap().stamp;
    assert_eq!(store.purge(9).await.unwrap(), 1);
    assert_consistent(&setup.server, setup.layout, "nothing is left");
    // The same id again, on its way when a purge that was slow comes to its end.
    let again = setup.attempt(1);
    again.intend(&named(1, KEY)).await.unwrap();
    again.obtain(None).await.unwrap();
    let layouts = store.database.layouts().await.unwrap();
    purge::forget(&store.database, layouts, &setup.kind, &setup.key, id(1), &stamp)
        .await
        .unwrap();
    let other = setup.attempt(2);
    other.intend(&named(2, KEY)).await.unwrap();
    assert!(matches!(other.obtain(None).await.unwrap(), Taken::Obtained));
    assert_eq!(setup.activate(&again).await, None, "it was seen on its way");
    assert!(setup.activate(&other).await.is_some());
    assert_consistent(&setup.server, setup.layout, "the other has it");
}

#[tokio::test]
async fn a_key_whose_row_was_removed_by_who_died_then_can_be_had() {
    let setup = Setup::new().await;
    let store = setup.store.clone().keep_history(NONE);
    add(&store, named(1, KEY)).await;
    assert!(change(&store, id(1), Verb::Cancel).await.is_done());
    let tag = setup.layout.slot(id(1)).tag("delayline:tasks");
    let mut admin = setup.server.admin();
    for key in [
        format!("{tag}:rows"),
        format!("{tag}:due:4:{KIND}"),
        format!("{tag}:wake:4:{KIND}"),
    ] {
        ask::<u64>(&mut admin, &["DEL", &key]);
    }
    ask::<u64>(
        &mut admin,
        &["SREM", &format!("{tag}:lanes"), &format!("4:{KIND}")],
    );
    assert_eq!(setup.find((KIND, KEY)).await, None);
    let task = add(&store, named(2, KEY)).await;
    assert_eq!(setup.find((KIND, KEY)).await, Some(task));
    assert_consistent(&setup.server, setup.layout, "the other has it");
}
