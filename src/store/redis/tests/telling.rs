//! What one process tells another, and what replicas confirm.

use super::consistent::ask;
use super::*;
use crate::store::Ahead;
use crate::store::proxy::{Network, Proxy};

fn ahead() -> Sweep {
    Sweep {
        ahead: Some(Ahead {
            within: Duration::from_secs(2),
            limit: 100,
        }),
        ..sweep()
    }
}

/// Longer than anything here takes, on any machine.
const TIME_LIMIT: Duration = Duration::from_secs(30);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(TIME_LIMIT, future).await;
    ended.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Another process, for this one.
async fn listening(server: &RedisServer, shards: u16) -> RedisStore {
    let store = open(server, shards);
    soon("the first message", store.notified()).await;
    assert!(store.database.listener.is_listening());
    drain(&store).await;
    store
}

/// Takes what has been said.
async fn drain(store: &RedisStore) {
    while tokio::time::timeout(Duration::ZERO, store.notified())
        .await
        .is_ok()
    {}
}

#[test]
fn a_store_listens_in_the_runtime_of_each_caller() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = &store.database.listener;
            assert!(!listener.is_listening(), "that of the last runtime is gone");
            let listens = async {
                while !listener.is_listening() {
                    store.notified().await;
                }
            };
            soon("that it listens", listens).await;
        });
    }
}

#[tokio::test]
async fn others_are_told_of_what_is_due_soon() {
    for shards in [1, 16] {
        let server = RedisServer::start();
        let writer = open(&server, shards);
        let store = listening(&server, shards).await;
        let redrive = Verb::Redrive { overdue_after: LONG };
        let dead = dead(&writer, 1, "a").await;
        soon("a message of an insert", store.notified()).await;
        drain(&store).await;
        assert!(change(&writer, dead.id, redrive).await.is_done());
        soon("a message of a redrive", store.notified()).await;
        drain(&store).await;

        add(&writer, later(2)).await;
        let run_now = Verb::RunNow { overdue_after: LONG };
        assert!(change(&writer, id(2), run_now).await.is_done());
        soon("a message of a change", store.notified()).await;
    }
}

#[tokio::test]
async fn what_others_write_is_swept_before_a_quiet_shard_is_asked_again() {
    for shards in [1, 16] {
        let server = RedisServer::start();
        let writer = open(&server, shards);
        let store = listening(&server, shards).await;
        let swept = store.sweep(&claim(1), &ahead()).await.unwrap();
        assert_eq!(swept.found, crate::store::PollResult::default());
        // Further away than the look ahead, and nearer than the next question.
        let row = NewRow {
            due: When::After(Duration::from_millis(3_500)),
            ..due(1)
        };
        let task = add(&writer, row).await;
        let found = async {
            loop {
                let swept = store.sweep(&claim(1), &ahead()).await.unwrap();
                if let Some(row) = swept.found.ahead.first() {
                    assert_eq!(row.wake.id, task.id);
                    break;
                }
                assert!(swept.now < task.due_at, "{shards} shards: found when it was due");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("the row", found).await;
    }
}

/// Whether the only shard is known to have nothing to sweep.
fn is_known(store: &RedisStore) -> bool {
    let indexes = [("wake:0", Some(NONE))].into_iter();
    store.database.idle.quiet(0, indexes, LONG).is_some()
}

#[tokio::test]
async fn a_lost_connection_is_noticed_and_what_was_missed_is_looked_for() {
    let server = RedisServer::start();
    let writer = open(&server, 1);
    let store = listening(&server, 1).await;
    store.sweep(&claim(1), &ahead()).await.unwrap();
    assert!(is_known(&store));
    let mut admin = server.admin();
    let killed: u64 = ask(&mut admin, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(killed, 1);
    soon("the message after a loss", store.notified()).await;
    assert!(!is_known(&store));
    add(
        &writer,
        NewRow {
            overdue_after: NONE,
            ..due(1)
        },
    )
    .await;
    soon("a message on the new connection", store.notified()).await;
    assert_eq!(
        store
            .sweep(&claim(1), &ahead())
            .await
            .unwrap()
            .found
            .claimed
            .len(),
        1
    );
}

/// Lets so much time pass at once.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_noticed_as_a_lost_one() {
    let server = RedisServer::start();
    let url = server.url();
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let proxy = Proxy::start(address.parse().unwrap()).await;
    let store = RedisStore::new(&proxy.url(&url)).unwrap();
    soon("the first message", store.notified()).await;
    drain(&store).await;
    proxy.set(Network::FrozenSoFar);
    // It is asked whether it is there, and does not answer.
    for _ in 0..2 {
        pass(9).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    soon("the message after a silence", store.notified()).await;
    assert!(store.database.listener.is_listening());
}

#[tokio::test]
async fn a_write_waits_for_replicas_where_asked() {
    let master = RedisServer::start();
    let port = master
        .url()
        .rsplit_once(':')
        .map(|(_, port)| port.to_owned())
        .unwrap();
    let wait = |millis| {
        let builder = RedisStore::builder(&master.url()).shards(1);
        builder.wait(1, Duration::from_millis(millis)).build().unwrap()
    };
    // None is there.
    let error = wait(10).insert(vec![due(1)]).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("not known"),
        "{error}"
    );
    assert!(
        wait(10).find(&id(1).into()).await.unwrap().is_some(),
        "it took effect"
    );

    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let attached = async {
        let mut admin = replica.admin();
        while !ask::<String>(&mut admin, &["INFO", "replication"]).contains("master_link_status:up") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the replica", attached).await;
    let store = wait(20_000);
    let task = add(&store, named(2, "a")).await;
    let rows = "{delayline:tasks:0}:rows";
    let mut command = redis::cmd("HEXISTS");
    command.arg(rows).arg(task.id.as_bytes());
    assert!(command.query::<bool>(&mut replica.admin()).unwrap());
    ask::<()>(&mut master.admin(), &["SCRIPT", "FLUSH"]);
    assert_eq!(store.ready(&claim(9)).await.unwrap().found.len(), 2);

    replica.signal("STOP");
    let error = wait(50).insert(vec![due(3)]).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    replica.signal("CONT");
    add(&store, due(4)).await;
}

#[tokio::test]
async fn a_claim_waits_for_no_replica() {
    let server = RedisServer::start();
    // None is there.
    let builder = RedisStore::builder(&server.url()).shards(1);
    let store = builder.wait(1, Duration::from_millis(10)).build().unwrap();
    for n in 1..=4 {
        assert!(store.insert(vec![due(n)]).await.is_err());
    }
    let task = store.find(&id(1).into()).await.unwrap().unwrap();
    let arrived = store.arrive(&[wake(&task)], &claim(1)).await.unwrap().found;
    assert_eq!(arrived.claimed.len(), 1);
    // A row that cannot be read is set aside.
    let mut command = redis::cmd("HSET");
    command.arg("{delayline:tasks:0}:rows").arg(id(2).as_bytes());
    let () = command.arg("no row").query(&mut server.admin()).unwrap();
    assert_eq!(store.ready(&claim(9)).await.unwrap().found.len(), 2);
}
