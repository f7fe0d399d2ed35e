//! From one server to a Cluster.

use super::redis_server::RedisCluster;
use super::*;
use crate::store::redis::shards::{of_id, of_key};

/// Moves every key of a server to the master of the Cluster that is to have it, as `redis-cli --cluster import` does.
fn import(from: &RedisServer, into: &RedisCluster) -> usize {
    let mut admin = from.admin();
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut admin).unwrap();
    for key in &keys {
        let slot = into.slot_of(std::str::from_utf8(key).unwrap());
        let address = into.address(into.master_of(slot));
        let (host, port) = address.split_once(':').unwrap();
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg(host).arg(port).arg(key).arg(0).arg(10_000);
        let said: String = migrate.query(&mut admin).unwrap();
        assert_eq!(said, "OK");
    }
    keys.len()
}

/// However many shards a prefix has, its keys can be moved from one server to a Cluster while no worker runs, and all
/// works there.
#[tokio::test]
async fn a_prefix_goes_from_one_server_to_a_cluster() {
    let cluster = RedisCluster::start();
    for shards in [1, 16] {
        let prefix = format!("from-{shards}");
        let server = RedisServer::start();
        let builder = RedisStore::builder(&server.url()).prefix(&prefix);
        let store = builder.shards(shards).build().unwrap();
        let pointed = (1_000..)
            .find(|n| of_id(shards, id(*n)) != of_key(shards, &KIND.into(), &"mine".into()) || shards == 1);
        let pointed = pointed.unwrap();
        for n in 1..=20 {
            add(&store, named(n, &n.to_string())).await;
        }
        add(
            &store,
            NewRow {
                overdue_after: LONG,
                ..later(500)
            },
        )
        .await;
        let claimed = store.ready(&claim(10)).await.unwrap().found;
        add(&store, named(pointed, "mine")).await;
        drop(store);
        assert!(import(&server, &cluster) > 0);

        // A store that asks for no number goes by what is kept.
        let builder = RedisStore::builder(&cluster.url()).prefix(&prefix);
        let store = builder.clone().build().unwrap();
        let checked = async { while store.check().await.is_err_and(|error| error.is_transient()) {} };
        tokio::time::timeout(Duration::from_secs(60), checked)
            .await
            .expect("the cluster");
        assert_eq!(store.database.shards().await.unwrap(), shards);
        let end = |task: &Task| Step::end(task.id, task.version, Ending::Done);
        let ends: Vec<_> = claimed.iter().map(end).collect();
        let settled = store.advance(&ends).await.unwrap();
        assert_eq!(settled, [Guarded::Done; 10]);
        assert_eq!(store.ready(&claim(100)).await.unwrap().found.len(), 11);
        let found = store.find(&(KIND, "mine").into()).await.unwrap().unwrap();
        assert_eq!((found.id, found.state), (id(pointed), State::Running));
        assert_eq!(store.find(&found.id.into()).await.unwrap(), Some(found));
        assert!(change(&store, id(500), Verb::Cancel).await.is_done());
        assert!(insert(&store, named(21, "20")).await.task().state.is_live());
        let other = builder.shards(64).build().unwrap();
        let error = other.check().await.unwrap_err();
        assert!(
            error.to_string().contains(&format!("over {shards} shards")),
            "{error}"
        );
    }
    // A prefix that begins there.
    let fresh = RedisStore::builder(&cluster.url())
        .prefix("fresh")
        .build()
        .unwrap();
    assert_eq!(fresh.database.shards().await.unwrap(), 64);
}
