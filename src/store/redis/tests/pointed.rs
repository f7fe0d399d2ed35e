//! Rows whose callers chose their ids together with keys, so that the ids have to point to them.

use super::consistent::{assert_consistent, hash};
use super::*;
use crate::Target;
use crate::store::Hop;
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
        let hop = Hop {
            id: task.id,
            version: 1,
            look_in: LONG,
        };
        assert_eq!(store.hop(&[hop]).await.unwrap(), [Guarded::Done]);
        let arrived = Wake {
            version: 2,
            ..wake(&task)
        };
        let claimed = store.arrive(&[arrived], &claim(1)).await.unwrap().found.claimed;
        assert_eq!((claimed[0].id, claimed[0].version), (task.id, 3));
        let settlement = Settlement {
            id: task.id,
            version: 3,
            ending: Ending::Release,
        };
        assert_eq!(store.settle(vec![settlement]).await.unwrap(), [Guarded::Done]);
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
    let store = open(&server, SHARDS).keep_history(NONE);
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
        let store = open(&server, SHARDS).keep_history(NONE);
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
