//! Rows whose callers chose their ids together with keys, so that the ids have to point to them.

use super::consistent::{assert_consistent, hash};
use super::*;
use crate::store::Target;
use crate::store::redis::shards::{of_id, of_key};

const SHARDS: u16 = 8;

/// Numbers of ids that are not in the shard of this key.
fn astray(key: &str) -> impl Iterator<Item = u64> {
    let home = of_key(SHARDS, &KIND.into(), &key.into());
    (1..).filter(move |n| of_id(SHARDS, id(*n)) != home)
}

fn pointers(server: &RedisServer) -> usize {
    let mut admin = server.admin();
    let of = |shard| hash(&mut admin, shard, "elsewhere").len();
    (0..SHARDS).map(of).sum()
}

#[tokio::test]
async fn an_id_that_is_made_for_a_key_needs_no_pointer() {
    let server = RedisServer::start();
    let store = open(&server, SHARDS);
    let scheduler = crate::Scheduler::builder(std::sync::Arc::new(store.clone()))
        .build()
        .unwrap();
    for n in 0..50 {
        let task = crate::NewTask::new(KIND, &n).key(n.to_string()).after(LONG);
        let made = scheduler.schedule(task).await.unwrap().task().clone();
        assert_eq!(store.find(&made.id.into()).await.unwrap(), Some(made));
    }
    assert_eq!(pointers(&server), 0);
    assert_consistent(&server, SHARDS, "ids that were made");
}

#[tokio::test]
async fn every_verb_finds_a_row_by_an_id_that_points_to_it() {
    let server = RedisServer::start();
    let store = open(&server, SHARDS);
    let ids: Vec<_> = astray("a").take(60).collect();
    for n in &ids {
        // One live row at a time.
        let task = add(&store, named(*n, "a")).await;
        assert_eq!(store.find(&task.id.into()).await.unwrap(), Some(task.clone()));
        let again = insert(&store, named(*n, "a")).await;
        assert_eq!(again, Scheduled::Existing(task.clone()));
        let keyless = insert(&store, due(*n)).await;
        assert_eq!(keyless, Scheduled::Existing(task.clone()));
        let hop = Step::hop(task.id, 1, LONG);
        assert_eq!(store.advance(&[hop]).await.unwrap(), [Guarded::Done]);
        let arrived = Wake {
            version: 2,
            ..wake(&task)
        };
        let claimed = store.arrive(&[arrived], &claim(1)).await.unwrap().found.claimed;
        assert_eq!((claimed[0].id, claimed[0].version), (task.id, 3));
        let settlement = Step::end(task.id, 3, Ending::Release);
        assert_eq!(store.advance(&[settlement]).await.unwrap(), [Guarded::Done]);
        assert!(change(&store, task.id, Verb::Cancel).await.is_done());
    }
    // In the order given, whichever way a row is named.
    let n = astray("b").find(|n| !ids.contains(n)).unwrap();
    add(&store, named(n, "b")).await;
    let target = |at: u64| match at % 2 {
        0 => Target::Id(id(n)),
        _ => (KIND, "b").into(),
    };
    let changes = (1..=6).map(|version| Change {
        target: target(version),
        verb: Verb::RunNow { look_in: LONG },
        expect: Expect::Version(version),
        note: Default::default(),
    });
    let answers = store.change(changes.collect()).await.unwrap().found;
    assert!(
        answers.iter().all(|answer| answer.as_ref().unwrap().is_done()),
        "{answers:?}"
    );
    assert_consistent(&server, SHARDS, "ids that point");
}

#[tokio::test]
async fn a_pointer_goes_with_its_row_unless_somebody_has_made_it_anew() {
    let server = RedisServer::start();
    let store = open_without_history(&server, SHARDS);
    let n = astray("a").next().unwrap();
    for _ in 0..3 {
        let task = add(&store, named(n, "a")).await;
        assert_eq!(pointers(&server), 1);
        assert!(change(&store, task.id, Verb::Cancel).await.is_done());
        assert_eq!(store.purge(9).await.unwrap(), 1);
        assert_eq!(pointers(&server), 0);
    }
    // Who comes between the end of a row and the removal of its pointer relies on one of its own.
    let task = add(&store, named(n, "a")).await;
    assert!(change(&store, task.id, Verb::Cancel).await.is_done());
    let own = of_id(SHARDS, id(n));
    let before = hash(&mut server.admin(), own, "elsewhere");
    let other = open(&server, SHARDS);
    assert_eq!(store.purge(9).await.unwrap(), 1);
    let mut command = redis::cmd("HSET");
    let key = format!("{}:elsewhere", super::consistent::tag(own));
    let () = command
        .arg(&key)
        .arg(&before[0].0)
        .arg(&before[0].1)
        .query(&mut server.admin())
        .unwrap();
    let again = add(&other, named(n, "a")).await;
    let after = hash(&mut server.admin(), own, "elsewhere");
    assert_ne!(before, after, "it is of another try");
    assert_eq!(store.find(&again.id.into()).await.unwrap(), Some(again));
    assert_consistent(&server, SHARDS, "a pointer that was made anew");
}

#[tokio::test]
async fn a_pointer_without_a_row_does_no_harm() {
    let server = RedisServer::start();
    let store = open(&server, SHARDS);
    let n = astray("a").next().unwrap();
    let (own, home) = (of_id(SHARDS, id(n)), of_key(SHARDS, &KIND.into(), &"a".into()));
    let point = |n: u64, home: u16| {
        let key = format!("{}:elsewhere", super::consistent::tag(own));
        let pointer = [&home.to_le_bytes()[..], &[7; 6]].concat();
        let mut command = redis::cmd("HSET");
        let () = command
            .arg(key)
            .arg(id(n).as_bytes())
            .arg(pointer)
            .query(&mut server.admin())
            .unwrap();
    };
    // Its process has died before the row was there.
    point(n, home);
    assert_eq!(store.find(&id(n).into()).await.unwrap(), None);
    assert_eq!(change(&store, id(n), Verb::Cancel).await, Answer::NotFound);
    let task = add(&store, named(n, "a")).await;
    assert_eq!(store.find(&id(n).into()).await.unwrap(), Some(task));
    // The id is used without a key: so its row is where it points.
    let other = astray("a")
        .skip(1)
        .find(|n| of_id(SHARDS, id(*n)) == own)
        .unwrap();
    point(other, home);
    let task = add(&store, due(other)).await;
    assert_eq!(store.find(&id(other).into()).await.unwrap(), Some(task));
    assert_eq!(insert(&store, named(other, "a")).await.task().id, id(other));
    // Or with another key, whose rows are elsewhere: that cannot be.
    let third = astray("a")
        .skip(2)
        .find(|n| of_id(SHARDS, id(*n)) == own && *n != other)
        .unwrap();
    point(third, (home + 1) % SHARDS);
    let inserted = store.insert(vec![named(third, "free")]).await;
    let error = inserted.and_then(|mut inserted| inserted.found.remove(0));
    let key_is_there = of_key(SHARDS, &KIND.into(), &"free".into()) == (home + 1) % SHARDS;
    assert_eq!(error.is_ok(), key_is_there, "{error:?}");
    assert_consistent(&server, SHARDS, "pointers that were left behind");
}

/// Every row ends and is removed as soon as it can be, while others insert it anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_is_there_is_found_by_its_id_whoever_comes_and_goes() {
    let server = RedisServer::start();
    let mut callers = tokio::task::JoinSet::new();
    let n = astray("a").next().unwrap();
    for _ in 0..8 {
        let store = open_without_history(&server, SHARDS);
        callers.spawn(async move {
            for _ in 0..200 {
                match insert(&store, named(n, "a")).await {
                    // Only its maker ends it, so until then it is there.
                    Scheduled::New(task) => {
                        assert_eq!(store.find(&task.id.into()).await.unwrap(), Some(task.clone()));
                        assert!(change(&store, task.id, Verb::Cancel).await.is_done());
                    }
                    Scheduled::Existing(_) => drop(store.purge(9).await.unwrap()),
                    answer => panic!("{answer:?}"),
                }
            }
        });
    }
    callers.join_all().await;
    assert_consistent(&server, SHARDS, "after all have gone");
}

/// Takes the pointer of an id away, as a failover does of which the row's own master knows nothing.
fn lose_pointer(server: &RedisServer, n: u64) {
    let key = format!("{}:elsewhere", super::consistent::tag(of_id(SHARDS, id(n))));
    let mut command = redis::cmd("HDEL");
    let lost: u64 = command
        .arg(key)
        .arg(id(n).as_bytes())
        .query(&mut server.admin())
        .unwrap();
    assert_eq!(lost, 1);
}

#[tokio::test]
async fn who_finds_a_row_whose_pointer_was_lost_can_end_what_it_began() {
    let server = RedisServer::start();
    let store = open(&server, SHARDS);
    let mut ids = astray("a");
    let mut next = || ids.next().unwrap();
    let end = async |task: &Task| {
        let settlement = Step::end(task.id, task.version, Ending::Done);
        store.advance(&[settlement]).await.unwrap()
    };
    // Because it is due.
    let n = next();
    add(&store, named(n, "a")).await;
    lose_pointer(&server, n);
    let claimed = store.ready(&claim(1)).await.unwrap().found;
    assert_eq!(end(&claimed[0]).await, [Guarded::Done]);
    assert_consistent(&server, SHARDS, "due");
    // Because its wake-up is overdue: by its id nobody finds it.
    let n = next();
    let overdue = NewRow {
        look_in: NONE,
        ..named(n, "a")
    };
    let task = add(&store, overdue.clone()).await;
    lose_pointer(&server, n);
    let looked = store.arrive(&[wake(&task)], &claim(1)).await.unwrap().found;
    assert_eq!((looked.claimed.len(), looked.stale), (0, 1));
    let claimed = store.sweep(&claim(1), &sweep()).await.unwrap().found.claimed;
    assert_eq!(end(&claimed[0]).await, [Guarded::Done]);
    assert_consistent(&server, SHARDS, "overdue");
    // Because its wake-up is overdue, and it has to be sent on.
    let n = next();
    let early = NewRow {
        due: When::After(LONG),
        ..overdue
    };
    add(&store, NewRow { id: id(n), ..early }).await;
    lose_pointer(&server, n);
    let early = store.sweep(&claim(1), &sweep()).await.unwrap().found.early;
    let hop = Step::hop(early[0].wake.id, early[0].wake.version, LONG);
    assert_eq!(store.advance(&[hop]).await.unwrap(), [Guarded::Done]);
    assert_consistent(&server, SHARDS, "early");
}

#[tokio::test]
async fn who_asks_again_for_a_row_whose_pointer_was_lost_finds_it() {
    let server = RedisServer::start();
    let store = open(&server, SHARDS);
    let n = astray("a").next().unwrap();
    let task = add(&store, named(n, "a")).await;
    let before = hash(&mut server.admin(), of_id(SHARDS, id(n)), "elsewhere");
    lose_pointer(&server, n);
    assert_eq!(insert(&store, named(n, "a")).await, Scheduled::Existing(task));
    assert!(change(&store, id(n), Verb::Cancel).await.is_done());
    // The same pointer, so it goes with the row.
    assert_eq!(
        hash(&mut server.admin(), of_id(SHARDS, id(n)), "elsewhere"),
        before
    );
}
