//! Tests TLS, certificates, and users with as few rights as possible.

use std::collections::HashMap;
use std::path::Path;

use super::support::{RedisCluster, RedisTlsServer};
use super::*;

/// The prefix of users who may not use another.
pub(super) const PREFIX: &str = "shop";
/// Every command that a user needs on one server.
pub(super) const SINGLE: &str = "+ping +subscribe +publish +evalsha +eval +time +hmget +hset +zadd +zrange \
    +zrangebyscore +zrem +zremrangebyrank +zscore";
/// And behind sentinels: the server that they name is asked whether it is the master.
pub(super) const BEHIND_SENTINELS: &str = "+role";
/// The same in a Cluster.
pub(super) const CLUSTERED: &str = "+ping +subscribe +publish +evalsha +eval +time +hmget +hset +zadd +zrange \
    +zrangebyscore +zrem +zremrangebyrank +zscore +cluster|slots +asking";

/// The rules of a user who may use such commands, on the keys and the channels of a prefix.
pub(super) fn rules(prefix: &str, commands: &str) -> String {
    format!("~{{{prefix}:* &{{{prefix}:* {commands}")
}

/// A URL with the authority to trust.
pub(super) fn trusting(url: &str, ca: &Path) -> String {
    format!("{url}?ca={}", ca.display())
}

fn shown(error: &Error) -> String {
    let mut shown = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        shown += &format!(" {error} {error:?}");
        source = error.source();
    }
    assert!(!shown.contains("secret"), "{shown}");
    shown
}

/// The error of a call, which is made again where a busy machine let it wait for as long as it does.
async fn error_of(failing: impl AsyncFn() -> Error) -> Error {
    for _ in 0..9 {
        let error = safely(failing()).await;
        if !error.to_string().contains("no answer within") {
            return error;
        }
    }
    safely(failing()).await
}

async fn failure(url: &str) -> Error {
    let backend = RedisBackend::builder(url).prefix(PREFIX).build().unwrap();
    let sent = error_of(async || backend.send(&[departure(1, HOUR)]).await.unwrap_err().cause).await;
    let health = error_of(async || backend.health().await.unwrap_err()).await;
    assert_eq!(sent.is_transient(), health.is_transient());
    assert_eq!(shown(&sent), shown(&health));
    if !sent.is_transient() {
        // There is no use in waiting for what an operator has to mend first.
        let received = error_of(async || backend.receive(1).await.unwrap_err()).await;
        assert_eq!(shown(&sent), shown(&received));
    }
    sent
}

#[tokio::test]
async fn a_server_of_another_authority_is_an_error_that_says_so() {
    let server = RedisTlsServer::start(&rules(PREFIX, SINGLE));
    let strange = RedisTlsServer::start(&rules(PREFIX, SINGLE));
    // Once another authority of the same name, once those of this system.
    for url in [trusting(&server.url(), &strange.ca()), server.url()] {
        let error = failure(&url).await;
        assert!(shown(&error).contains("invalid peer certificate"), "{error}");
        assert!(!error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_is_shown_to_a_server_that_asks_for_it() {
    let server = RedisTlsServer::start_for_certified(&rules(PREFIX, SINGLE));
    let url = trusting(&server.url(), &server.ca());
    let error = failure(&url).await;
    assert!(shown(&error).contains("CertificateRequired"), "{error}");
    assert!(!error.is_transient(), "{error}");

    let (certificate, key) = server.client_certificate();
    let url = format!("{url}&cert={}&key={}", certificate.display(), key.display());
    let backend = RedisBackend::builder(&url).prefix(PREFIX).build().unwrap();
    send_until_taken(&backend, &[departure(1, Duration::ZERO)]).await;
    assert_eq!(wakes(&safely(backend.receive(1)).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn tls_on_one_side_only_is_an_error() {
    let server = RedisTlsServer::start(&rules(PREFIX, SINGLE));
    failure(&server.url().replace("rediss", "redis")).await;
    let plain = RedisServer::start();
    let url = plain.url().replace("redis://", "rediss://delayline:secret@");
    failure(&trusting(&url, &server.ca())).await;
}

#[tokio::test]
async fn in_a_cluster_it_is_said_as_plainly_why_no_node_lets_one_in() {
    let cluster = RedisCluster::start_with_tls(&rules(PREFIX, CLUSTERED));
    let strange = RedisTlsServer::start(&rules(PREFIX, SINGLE));
    let error = failure(&trusting(&cluster.url(), &strange.ca())).await;
    assert!(shown(&error).contains("invalid peer certificate"), "{error}");
    assert!(!error.is_transient(), "{error}");
    let url = cluster.url().replace(":secret@", ":wrong-secret@");
    let error = failure(&trusting(&url, &cluster.ca())).await;
    assert!(shown(&error).contains("authentication failed"), "{error}");
    assert!(!error.is_transient(), "{error}");
}

/// Uses everything that a backend does.
async fn use_all(backend: &Arc<RedisBackend>, spoil: impl FnOnce()) {
    until_healthy(backend).await;
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    send_until_taken(backend, &[departure(1, HOUR), departure(2, HOUR)]).await;
    safely(backend.remove(&[wake(1)])).await.unwrap();
    send_until_taken(backend, &[departure(3, Duration::ZERO)]).await;
    let arrivals = safely(receiving).await.unwrap().unwrap();
    assert_eq!(wakes(&arrivals), [wake(3)]);
    safely(backend.acknowledge(arrivals)).await;
    spoil();
    send_until_taken(backend, &[departure(4, Duration::from_millis(5))]).await;
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(4)]);
    safely(async {
        while backend.foreign() == 0 {
            let _nothing = timeout(Duration::from_millis(50), backend.receive(1)).await;
        }
    })
    .await;
    safely(backend.close()).await.unwrap();
}

/// Asserts that every allowed command was used, and no other was sent.
fn assert_just_enough(commands: &str, mut servers: Vec<redis::Connection>) {
    let mut ask = |command: [&str; 2]| -> Vec<redis::Value> {
        let ask =
            |server: &mut redis::Connection| redis::cmd(command[0]).arg(command[1]).query(server).unwrap();
        servers.iter_mut().map(ask).collect()
    };
    let stats = format!("{:?}", ask(["INFO", "commandstats"]));
    for command in commands.split_whitespace() {
        let command = command.trim_start_matches('+');
        let name = format!("cmdstat_{command}:calls=");
        let used = stats.split(&name).skip(1).any(|calls| !calls.starts_with('0'));
        assert!(used, "{command} is not needed");
    }
    for log in ask(["ACL", "LOG"]) {
        let log: Vec<HashMap<String, redis::Value>> = redis::from_redis_value(log).unwrap();
        for refused in log {
            let text = |name: &str| redis::from_redis_value_ref::<String>(&refused[name]).unwrap();
            // The client sends its name and version, and does not need to be allowed to.
            let is_told = text("object") == "client|setinfo" || text("username") == "default";
            assert!(is_told, "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_user_needs_these_commands_and_no_others() {
    let server = RedisTlsServer::start(&rules(PREFIX, SINGLE));
    let builder = RedisBackend::builder(&trusting(&server.url(), &server.ca()));
    let backend = Arc::new(builder.prefix(PREFIX).build().unwrap());
    let mut admin = server.admin();
    // Connections that waited for the server to start had no name yet.
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut admin).unwrap();
    use_all(&backend, || {
        let foreign = redis::cmd("ZADD")
            .arg("{shop:wakes:0}:due")
            .arg(0)
            .arg("foreign")
            .exec(&mut admin);
        foreign.unwrap();
    })
    .await;
    assert_just_enough(SINGLE, vec![server.admin()]);
}

#[tokio::test]
async fn in_a_cluster_a_user_needs_these_commands_and_no_others() {
    let cluster = RedisCluster::start_with_tls(&rules(PREFIX, CLUSTERED));
    let builder = RedisBackend::builder(&trusting(&cluster.url(), &cluster.ca()));
    // One slot, so that the test knows where everything is.
    let builder = builder.prefix(PREFIX).shards(1);
    let backend = Arc::new(builder.clone().build().unwrap());
    let key = "{shop:wakes:0}:due";
    let slot = cluster.slot_of(key);
    let master = cluster.master_of(slot);
    for node in cluster.nodes() {
        let () = redis::cmd("CONFIG")
            .arg("RESETSTAT")
            .query(&mut cluster.admin(node))
            .unwrap();
    }
    use_all(&backend, || {
        let mut admin = cluster.admin(master);
        redis::cmd("ZADD")
            .arg(key)
            .arg(0)
            .arg("foreign")
            .exec(&mut admin)
            .unwrap();
    })
    .await;
    // Of a slot that is on its way each key is asked for at its new master first.
    let backend = builder.build().unwrap();
    send_until_taken(&backend, &[departure(5, HOUR)]).await;
    let migration = cluster.begin_migration(slot, (master + 1) % 3);
    migration.move_keys();
    send_until_taken(&backend, &[departure(6, HOUR)]).await;
    migration.finish();
    assert_just_enough(
        CLUSTERED,
        cluster.nodes().map(|node| cluster.admin(node)).collect(),
    );
}
