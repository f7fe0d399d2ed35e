//! Users who may do as little as possible, over TLS.

use std::collections::HashMap;
use std::path::Path;

use ::redis::{Connection, Value};
use delayline::testing::store::cases;

use super::*;
use crate::redis_server::RedisTlsServer;

/// Every command that a user needs for rows on one server; `wait` only where writes wait for replicas.
const SINGLE: &str = "+ping +subscribe +publish +evalsha +eval +time +info +wait +get +set +hdel +hget +hmget +hset +zadd \
    +zcount +zrange +zrangebylex +zrangebyscore +zrem +zrevrange +zrevrangebylex";
/// The same in a Cluster.
const CLUSTERED: &str = "+ping +subscribe +publish +evalsha +eval +time +info +wait +get +set +hdel +hget +hmget +hset +zadd \
    +zcount +zrange +zrangebylex +zrangebyscore +zrem +zrevrange +zrevrangebylex +cluster|slots +asking";

/// The rules of a user who may use such commands, on the keys and the channels of the prefix.
fn rules(commands: &str) -> String {
    format!("~{{{PREFIX}:* &{{{PREFIX}:* {commands}")
}

/// A URL with the authority to trust.
fn trusting(url: &str, ca: &Path) -> String {
    format!("{url}?ca={}", ca.display())
}

impl Servers {
    pub(crate) fn over_tls() -> Self {
        static SERVER: Shared<RedisTlsServer> = Shared::new();
        let server = SERVER.get(|| RedisTlsServer::start(&rules(SINGLE)));
        Self::of(trusting(&server.url(), &server.ca()), server)
    }

    pub(crate) fn behind_sentinels_over_tls() -> Self {
        static SERVERS: Shared<RedisSentinel> = Shared::new();
        // A server that sentinels name is asked whether it is the master.
        let rules = rules(&format!("{SINGLE} +role"));
        let servers = SERVERS.get(|| RedisSentinel::start_with_tls(&rules));
        Self::of(trusting(&servers.url(), &servers.ca()), servers)
    }

    pub(crate) fn in_a_cluster_over_tls() -> Self {
        static CLUSTER: Shared<RedisCluster> = Shared::new();
        let cluster = CLUSTER.get(|| RedisCluster::start_with_tls(&rules(CLUSTERED)));
        Self::of(trusting(&cluster.url(), &cluster.ca()), cluster)
    }
}

/// Does everything that a store does, where rows are in one shard and where they are in two; gives one that listens.
async fn use_all(url: &str) -> RedisStore {
    let [one, several] = [1, 2].map(|shards| Servers {
        shards: Some(shards),
        ..Servers::of(url.to_owned(), ())
    });
    // Together: some wait for leases to end.
    tokio::join!(use_cases(&one), use_cases(&several));
    let builder = RedisStore::builder(url).prefix(format!("{PREFIX}:told"));
    let store = builder.clone().build().expect("good settings");
    let confirmed = builder.wait(1, Duration::from_millis(1)).build();
    let scheduler = delayline::Scheduler::new(confirmed.expect("good settings"));
    // Whether there is a replica to confirm it does not matter.
    let _unconfirmed = scheduler
        .schedule(delayline::NewTask::new("order.cancel", &()))
        .await;
    store.notified().await;
    store
}

async fn use_cases(servers: &Servers) {
    tokio::join!(
        cases::every_transition_adds_one_to_the_version(servers),
        cases::a_list_goes_on_after_its_last_row(servers),
        cases::a_key_means_its_live_row_else_the_newest(servers),
        cases::history_is_removed_when_its_time_has_passed(servers),
        cases::a_removed_row_hides_no_older_one_of_its_key(servers),
        cases::a_sweep_looks_ahead_where_asked(servers),
        cases::redrive_yields_to_another_live_row_of_the_key(servers),
        cases::live_and_dead_rows_are_never_removed(servers),
        cases::kinds_are_those_that_have_rows_in_the_state(servers),
    );
}

fn ask(server: &mut Connection, command: [&str; 2]) -> Value {
    ::redis::cmd(command[0])
        .arg(command[1])
        .query(server)
        .expect("an answer")
}

/// Waits until every command that a user may use was used, and asserts that no other was asked for.
async fn assert_just_enough(commands: &str, mut servers: Vec<Connection>) {
    let waiting = async {
        loop {
            let stats: Vec<_> = servers
                .iter_mut()
                .map(|server| ask(server, ["INFO", "commandstats"]))
                .collect();
            let stats = format!("{stats:?}");
            let is_used = |command: &str| {
                let name = format!("cmdstat_{}:calls=", command.trim_start_matches('+'));
                stats.split(&name).skip(1).any(|calls| !calls.starts_with('0'))
            };
            let unused: Vec<_> = commands
                .split_whitespace()
                .filter(|command| !is_used(command))
                .collect();
            // Only a client that hears nothing for a while asks whether the server is there.
            if unused != ["+ping"] {
                break unused;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let unused = tokio::time::timeout(SAFETY, waiting).await;
    assert_eq!(unused.expect("a ping"), Vec::<&str>::new(), "not needed");
    for server in &mut servers {
        let log: Vec<HashMap<String, Value>> =
            ::redis::from_redis_value(ask(server, ["ACL", "LOG"])).expect("a log");
        for refused in log {
            let text = |name: &str| ::redis::from_redis_value_ref::<String>(&refused[name]).expect("a text");
            // The client tells its name and version, and does not mind if it may not.
            let is_told = text("object") == "client|setinfo" || text("username") == "default";
            assert!(is_told, "{refused:?}");
        }
    }
}

fn forget_statistics(mut server: Connection) {
    ask(&mut server, ["CONFIG", "RESETSTAT"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_these_commands_and_no_others() {
    let server = RedisTlsServer::start(&rules(SINGLE));
    forget_statistics(server.admin());
    let _listening = use_all(&trusting(&server.url(), &server.ca())).await;
    assert_just_enough(SINGLE, vec![server.admin()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_user_needs_these_commands_and_no_others() {
    let cluster = RedisCluster::start_with_tls(&rules(CLUSTERED));
    let admins = || cluster.nodes().map(|node| cluster.admin(node));
    admins().for_each(forget_statistics);
    let url = trusting(&cluster.url(), &cluster.ca());
    let _listening = use_all(&url).await;
    // Of a slot that is on its way each key is asked for at its new master first.
    let shards = format!("{{{PREFIX}:told:tasks}}:shards");
    let slot = cluster.slot_of(&shards);
    let migration = cluster.begin_migration(slot, (cluster.master_of(slot) + 1) % 3);
    migration.move_keys();
    let store = RedisStore::builder(&url).prefix(format!("{PREFIX}:told")).build();
    store.expect("good settings").check().await.expect("the servers");
    migration.finish();
    assert_just_enough(CLUSTERED, admins().collect()).await;
}
