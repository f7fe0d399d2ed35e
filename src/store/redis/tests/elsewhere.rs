//! Rows whose callers chose their ids together with keys, so that ids do not say where they are.

use super::consistent::assert_consistent;
use super::*;
use crate::store::Target;
use crate::store::redis::shards::{of_id, of_key};

const SHARDS: u16 = 8;

/// Numbers of ids that are not in the shard of this key.
fn astray(key: &str) -> impl Iterator<Item = u64> {
    let home = of_key(SHARDS, &KIND.into(), &key.into());
    (1..).filter(move |n| of_id(SHARDS, id(*n)) != home)
}

#[tokio::test]
async fn an_id_that_is_made_for_a_key_says_where_its_row_is() {
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
    assert_consistent(&server, SHARDS, "ids that were made");
}

#[tokio::test]
async fn every_verb_finds_a_row_by_an_id_that_does_not_say_where_it_is() {
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
        verb: Verb::RunNow { overdue_after: LONG },
        expect: Expect::Version(version),
        note: Default::default(),
    });
    let answers = store.change(changes.collect()).await.unwrap().found;
    assert!(
        answers.iter().all(|answer| answer.as_ref().unwrap().is_done()),
        "{answers:?}"
    );
    assert_consistent(&server, SHARDS, "ids that were chosen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_is_there_is_found_by_its_id_whatever_other_callers_do() {
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
