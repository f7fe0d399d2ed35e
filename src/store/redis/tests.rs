//! The table by its contract, and what goes beyond it: indexes, corrupt rows, full servers, lost answers, and what it costs.

mod answers;
#[cfg(feature = "testing")]
mod conformance;
mod consistent;
mod corrupt;
mod costs;
mod elsewhere;
mod full;
mod growing;
mod mending;
#[path = "../../../tests/support/redis/mod.rs"]
mod redis_server;
mod servers;
mod telling;
mod walk;
mod working;

use std::collections::BTreeMap;
use std::time::Duration;

use self::redis_server::{RedisCluster, RedisServer};
use super::RedisStore;
use super::shards::of_id;
use crate::store::{Change, Claim, Ending, Expect, Guarded, NewRow, Renewal, Step, Store, Sweep, Verb, When};
use crate::task::wake::Wake;
use crate::{Answer, Scheduled, State, Task, TaskId};

const KIND: &str = "order.cancel";
const LONG: Duration = Duration::from_secs(3_600);
const NONE: Duration = Duration::ZERO;

fn open(server: &RedisServer, shards: u16) -> RedisStore {
    let builder = RedisStore::builder(&server.url()).shards(shards);
    builder.build().expect("good settings")
}

fn open_without_history(server: &RedisServer, shards: u16) -> RedisStore {
    let builder = RedisStore::builder(&server.url()).shards(shards);
    builder.keep_history(NONE).build().expect("good settings")
}

fn id(n: u64) -> TaskId {
    TaskId::from_bytes(u128::from(n).to_be_bytes())
}

/// A row that is due, and looked for in a long time.
fn due(n: u64) -> NewRow {
    NewRow {
        id: id(n),
        kind: KIND.into(),
        key: None,
        payload: b"payload".to_vec(),
        headers: BTreeMap::new(),
        due: When::After(NONE),
        overdue_after: LONG,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

fn named(n: u64, key: &str) -> NewRow {
    NewRow {
        key: Some(key.into()),
        ..due(n)
    }
}

fn later(n: u64) -> NewRow {
    NewRow {
        due: When::After(LONG),
        ..due(n)
    }
}

fn claim(room: usize) -> Claim {
    Claim {
        owner: "tester".into(),
        lease: LONG,
        room: [(KIND.into(), room)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

fn sweep() -> Sweep {
    Sweep {
        limit: 100,
        retake: LONG,
        ahead: None,
    }
}

fn wake(task: &Task) -> Wake {
    Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version,
    }
}

async fn insert(store: &RedisStore, row: NewRow) -> Scheduled {
    store.insert(vec![row]).await.unwrap().found.remove(0).unwrap()
}

async fn add(store: &RedisStore, row: NewRow) -> Task {
    match insert(store, row).await {
        Scheduled::New(task) => task,
        answer => panic!("a new row was answered {answer:?}"),
    }
}

async fn change(store: &RedisStore, id: TaskId, verb: Verb) -> Answer {
    let change = Change {
        target: id.into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    };
    store.change(vec![change]).await.unwrap().found.remove(0).unwrap()
}

/// The slot of a Cluster that has the row of a task without a key.
async fn slot_of(cluster: &RedisCluster, store: &RedisStore, task: &Task) -> u16 {
    let home = of_id(store.database.shards().await.unwrap(), task.id);
    cluster.slot_of(&store.database.tag(home))
}

/// A row that is dead, under a key.
async fn dead(store: &RedisStore, n: u64, key: &str) -> Task {
    let task = add(store, named(n, key)).await;
    let looked = store.arrive(&[wake(&task)], &claim(1)).await.unwrap();
    let ending = Ending::Dead {
        error: "gave up".to_owned(),
        give_back: false,
    };
    let settlement = Step::end(task.id, looked.found.claimed[0].version, ending);
    assert_eq!(store.advance(&[settlement]).await.unwrap(), [Guarded::Done]);
    let task = store.find(&task.id.into()).await.unwrap().unwrap();
    assert_eq!(task.state, State::Dead);
    task
}

#[test]
fn settings_are_checked_and_passwords_are_never_shown() {
    let store = RedisStore::new("redis://user:s3cret@cache.example").unwrap();
    let shown = format!("{store:?} {:?}", store.database);
    assert!(
        shown.contains("cache.example") && !shown.contains("cret"),
        "{shown}"
    );
    let builder = RedisStore::builder("redis://user:s3cret@cache.example");
    assert!(!format!("{builder:?}").contains("cret"), "{builder:?}");
    assert!(builder.clone().prefix("a{b").build().is_err());
    assert!(builder.clone().shards(0).build().is_err());
    assert!(builder.shards(1_025).build().is_err());
    assert!(RedisStore::new("http://s3cret").is_err());
}

#[tokio::test]
async fn the_longest_wait_for_replicas_can_be_used() {
    // Nothing listens on port 1.
    let builder = RedisStore::builder("redis://127.0.0.1:1").wait(1, Duration::MAX);
    let error = builder.build().unwrap().now().await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("refused"),
        "{error}"
    );
}
