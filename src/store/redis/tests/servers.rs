//! Servers that forget or would, and settings and values that cannot be kept.

use super::super::shards::of_kind;
use super::consistent::{ask, assert_consistent};
use super::*;
use crate::store::{Page, Paused};
use crate::{NewTask, Scheduler};

#[tokio::test]
async fn a_server_that_forgets_all_is_as_a_new_one() {
    for shards in [1, 16] {
        let server = RedisServer::start();
        let (store, other) = (open(&server, shards), open(&server, shards));
        let before = add(&store, named(1, "a")).await;
        store.sweep(&claim(1), &sweep()).await.unwrap();
        ask::<()>(&mut server.admin(), &["FLUSHALL"]);
        assert_eq!(store.find(&before.id.into()).await.unwrap(), None);
        assert_eq!(
            store
                .arrive(&[wake(&before)], &claim(1))
                .await
                .unwrap()
                .found
                .stale,
            1
        );
        assert_eq!(store.sweep(&claim(1), &sweep()).await.unwrap().found.claimed, []);
        let after = add(&store, named(1, "a")).await;
        assert_eq!(
            other.find(&(KIND, "a").into()).await.unwrap(),
            Some(after.clone())
        );
        assert_eq!(other.ready(&claim(1)).await.unwrap().found[0].id, after.id);
        // A store that knows the number says it again to a server that has lost it.
        assert_eq!(other.database.shards.ask().await.unwrap(), shards);
        let any = RedisStore::new(&server.url()).unwrap();
        assert_eq!(any.database.shards().await.unwrap(), shards);
        assert_consistent(&server, shards, "after all was forgotten");
    }
}

#[tokio::test]
async fn a_server_that_forgets_scripts_is_told_them_again() {
    let server = RedisServer::start();
    let store = open(&server, 4);
    for n in 1..=5 {
        let mut admin = server.admin();
        ask::<()>(&mut admin, &["SCRIPT", "FLUSH"]);
        let task = add(&store, named(n, &n.to_string())).await;
        ask::<()>(&mut admin, &["SCRIPT", "FLUSH"]);
        assert_eq!(store.ready(&claim(1)).await.unwrap().found[0].id, task.id);
    }
}

#[tokio::test]
async fn a_server_that_would_remove_tasks_is_refused() {
    let with = |policy| RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);
    let error = open(&with("allkeys-lru"), 2).check().await.unwrap_err();
    assert!(
        error.to_string().contains("allkeys-lru") && !error.is_transient(),
        "{error}"
    );
    open(&with("noeviction"), 2).check().await.unwrap();
}

#[tokio::test]
async fn the_number_of_shards_is_fixed_when_a_prefix_is_first_used() {
    let server = RedisServer::start();
    let task = add(&open(&server, 3), named(1, "a")).await;
    for other in [open(&server, 7), open(&server, 1)] {
        for error in [
            other.find(&task.id.into()).await.unwrap_err(),
            other.insert(vec![due(2)]).await.unwrap_err(),
            other.check().await.unwrap_err(),
        ] {
            let wanted = other.database.settings.shards.unwrap();
            let said = error.to_string();
            assert!(
                said.contains("over 3 shards") && said.contains(&format!("over {wanted}")),
                "{said}"
            );
            assert!(!error.is_transient());
        }
    }
    let any = RedisStore::new(&server.url()).unwrap();
    assert_eq!(any.find(&task.id.into()).await.unwrap(), Some(task));
    let fresh = RedisStore::builder(&server.url())
        .prefix("fresh")
        .build()
        .unwrap();
    assert_eq!(fresh.database.shards().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_master_is_away_another_one_says_the_time() {
    let cluster = RedisCluster::start_with(&["--cluster-node-timeout", "60000"]);
    let store = RedisStore::new(&cluster.url()).unwrap();
    store.check().await.unwrap();
    let master = cluster.master_of(cluster.slot_of(&store.database.tag(0)));
    cluster.signal(master, "STOP");
    for _ in 0..2 {
        store.now().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_master_is_away_what_is_paused_is_known_and_tasks_of_others_start() {
    let cluster = RedisCluster::start_with(&["--cluster-node-timeout", "60000"]);
    let store = RedisStore::new(&cluster.url()).unwrap();
    let shards = store.database.shards().await.unwrap();
    let master_of = |shard| cluster.master_of(cluster.slot_of(&store.database.tag(shard)));
    let has_pauses = master_of(of_kind(shards, Some(&Paused::KIND.into())).start);
    let away = (0..shards).map(master_of).find(|&master| master != has_pauses);
    let scheduler = Scheduler::new(store.clone());
    for kind in ["goes.on", "waits"] {
        let tasks = (0..100).map(|number| NewTask::new(kind, &number));
        scheduler.schedule_all(tasks).await.unwrap();
    }
    scheduler.pause("waits", None, "").await.unwrap();
    cluster.signal(away.unwrap(), "STOP");
    scheduler.pause("waits too", None, "").await.unwrap();
    assert_eq!(scheduler.paused().await.unwrap().len(), 2);
    let kinds = ["goes.on".into(), "waits".into()];
    let taken = scheduler.claims().take(&kinds, 200, LONG, "a").await.unwrap();
    assert!(!taken.is_empty());
    assert!(taken.iter().all(|claimed| claimed.task.kind == kinds[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_master_refuses_is_no_fault_of_its_rows() {
    let cluster = RedisCluster::start();
    let store = RedisStore::new(&cluster.url()).unwrap();
    let task = add(&store, due(1)).await;
    let master = cluster.master_of(slot_of(&cluster, &store, &task).await);
    ask::<()>(
        &mut cluster.admin(master),
        &["ACL", "SETUSER", "default", "-@scripting"],
    );
    let error = store.find(&task.id.into()).await.unwrap_err();
    let said = error.to_string();
    assert!(!error.is_transient(), "{said}");
    assert!(
        said.to_uppercase().contains("NOPERM") && !said.contains("repair"),
        "{said}"
    );
}

#[tokio::test]
async fn what_cannot_be_kept_apart_is_refused_by_itself() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    for row in [
        NewRow {
            kind: "a\0b".into(),
            ..due(1)
        },
        NewRow {
            kind: "k".repeat(101).as_str().into(),
            ..due(1)
        },
        named(1, "a\0b"),
        named(1, &"k".repeat(256)),
    ] {
        let found = store.insert(vec![due(2), row.clone()]).await.unwrap().found;
        assert!(matches!(found[1], Err(crate::Error::Invalid { .. })), "{found:?}");
        assert_eq!(found[0].as_ref().unwrap().task().id, id(2));
        let alone = store.insert(vec![row]).await.unwrap().found;
        assert!(matches!(alone[0], Err(crate::Error::Invalid { .. })), "{alone:?}");
        assert_eq!(store.find(&id(1).into()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn times_that_no_task_is_due_at_are_kept_as_well_as_can_be() {
    use crate::Timestamp;
    let server = RedisServer::start();
    let store = open(&server, 1);
    let at = |time| NewRow {
        due: When::At(Timestamp::from_millis(time)),
        ..due(1)
    };
    for (given, kept) in [
        (i64::MIN, i64::MIN),
        (i64::MIN + 1, i64::MIN + 1),
        (-1, -1),
        (0, 0),
        (i64::MAX, i64::MAX),
    ] {
        let task = add(&store, at(given)).await;
        assert_eq!(task.due_at.as_millis(), kept);
        assert_eq!(store.find(&task.id.into()).await.unwrap(), Some(task.clone()));
        let page = Page::new(KIND, State::Scheduled).limit(9);
        assert_eq!(store.list(&page).await.unwrap(), std::slice::from_ref(&task));
        let after = Some((task.due_at, task.id));
        assert_eq!(store.list(&Page { after, ..page }).await.unwrap(), []);
        let reschedule = Verb::Reschedule {
            due: When::At(Timestamp::from_millis(given)),
            overdue_after: LONG,
        };
        let expecting = Change {
            target: task.id.into(),
            verb: reschedule,
            expect: Expect::Due(task.due_at),
            note: Default::default(),
        };
        let changed = store.change(vec![expecting]).await.unwrap().found.remove(0);
        assert!(changed.unwrap().is_done());
        ask::<()>(&mut server.admin(), &["FLUSHALL"]);
    }
}
