//! Tests the Redis servers that other tests start: that they behave as those tests rely on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Commands, ErrorKind, RedisError, RedisResult, ServerErrorKind};

use crate::support::{RedisCluster, RedisSentinel, RedisTlsServer};

const RULES: &str = "~{shop}* &{shop}* +ping +set +get";

fn set(cluster: &RedisCluster, node: usize, key: &str) -> RedisResult<()> {
    cluster.admin(node).set(key, "value")
}

fn is(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}

/// The port that a redirection names.
fn redirected_to(error: &RedisError) -> String {
    error.redirect_node().unwrap().0.to_owned()
}

/// The server's answer over TLS, if the handshake succeeds.
fn over_tls(port: &str, ca: &Path, args: &[&str], commands: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-connect"])
        .arg(format!("localhost:{port}"))
        .arg("-CAfile")
        .arg(ca)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The server ends the connection; when it has done so already, this is not read.
    let _gone = client
        .stdin
        .as_mut()
        .unwrap()
        .write_all(format!("{}\r\nQUIT\r\n", commands.join("\r\n")).as_bytes());
    String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_cluster_takes_keys_on_all_masters() {
    let cluster = RedisCluster::start();
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 6);
    assert_eq!(cluster.masters(), [0, 1, 2]);
    let keys: Vec<_> = (0..100).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        let master = cluster.master_of(cluster.slot_of(key));
        set(&cluster, master, key).unwrap();
        let elsewhere = set(&cluster, (master + 1) % 3, key).unwrap_err();
        assert!(is(&elsewhere, ServerErrorKind::Moved), "{elsewhere}");
        assert_eq!(redirected_to(&elsewhere), cluster.address(master));
    }
    let counts = cluster.masters().into_iter().map(|node| {
        let count: usize = redis::cmd("DBSIZE").query(&mut cluster.admin(node)).unwrap();
        assert_ne!(count, 0, "of node {node}");
        count
    });
    assert_eq!(counts.sum::<usize>(), keys.len());
    cluster.ask_masters(&["FLUSHALL"]);
    for node in cluster.masters() {
        let count: usize = redis::cmd("DBSIZE").query(&mut cluster.admin(node)).unwrap();
        assert_eq!(count, 0, "of node {node}");
    }
}

#[test]
fn a_killed_or_stopped_master_of_a_cluster_is_replaced() {
    let mut cluster = RedisCluster::start_with(&["--maxmemory", "50mb"]);
    let slot = cluster.slot_of("key");
    let former = cluster.master_of(slot);
    // Both on one connection: `WAIT` is about its own writes.
    let mut writer = cluster.admin(former);
    let () = writer.set("key", "value").unwrap();
    let copied: usize = redis::cmd("WAIT").arg(1).arg(0).query(&mut writer).unwrap();
    assert_eq!(copied, 1);
    cluster.kill(former);
    let master = cluster.wait_for_failover(slot, former);
    assert_eq!(cluster.master_of(slot), master);
    let value: String = cluster.admin(master).get("key").unwrap();
    assert_eq!(value, "value");

    cluster.restart(former);
    cluster.wait_until_whole();
    assert_eq!(cluster.master_of(slot), master);

    cluster.signal(master, "STOP");
    assert_eq!(cluster.wait_for_failover(slot, master), former);
    let value: String = cluster.admin(former).get("key").unwrap();
    assert_eq!(value, "value");
    cluster.signal(master, "CONT");
    cluster.wait_until_whole();
    assert_eq!(cluster.master_of(slot), former);
}

#[test]
fn a_slot_of_a_cluster_moves_by_way_of_redirections() {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of("{shop}");
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;
    let keys: Vec<_> = (0..25).map(|number| format!("{{shop}}{number}")).collect();
    for key in &keys {
        set(&cluster, from, key).unwrap();
    }

    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_some(5), 5);
    let asks = keys
        .iter()
        .filter_map(|key| cluster.admin(from).get::<_, String>(key).err())
        .inspect(|error| {
            assert!(is(error, ServerErrorKind::Ask), "{error}");
            assert_eq!(redirected_to(error), cluster.address(to));
        });
    assert_eq!(asks.count(), 5);
    migration.move_keys();
    assert_eq!(migration.move_some(5), 0);
    migration.finish();

    assert_eq!(cluster.master_of(slot), to);
    for key in &keys {
        let value: String = cluster.admin(to).get(key).unwrap();
        assert_eq!(value, "value");
        let moved = cluster.admin(from).get::<_, String>(key).unwrap_err();
        assert!(is(&moved, ServerErrorKind::Moved), "{moved}");
    }
    cluster.migrate_slot(slot, from);
    assert_eq!(cluster.master_of(slot), from);
    let value: String = cluster.admin(from).get(&keys[0]).unwrap();
    assert_eq!(value, "value");
}

#[test]
fn a_cluster_over_tls_does_the_same() {
    let mut cluster = RedisCluster::start_with_tls(RULES);
    assert!(
        cluster.url().starts_with("rediss+cluster://delayline:secret@127"),
        "{}",
        cluster.url()
    );
    let slot = cluster.slot_of("{shop}");
    let from = cluster.master_of(slot);
    let address = cluster.address(from);
    let (_, port) = address.split_once(':').unwrap();
    let commands = ["AUTH delayline secret", "SET {shop} value", "SET shop value"];
    let said = over_tls(port, &cluster.ca(), &[], &commands);
    assert!(said.starts_with("+OK\r\n+OK\r\n-NOPERM"), "{said}");

    let to = (from + 1) % 3;
    cluster.migrate_slot(slot, to);
    let moved = set(&cluster, from, "{shop}").unwrap_err();
    assert_eq!(redirected_to(&moved), cluster.address(to));
    let value: String = cluster.admin(to).get("{shop}").unwrap();
    assert_eq!(value, "value");

    cluster.kill(to);
    cluster.wait_for_failover(slot, to);
    cluster.restart(to);
    cluster.wait_until_whole();
}

#[test]
fn a_server_over_tls_lets_its_user_do_what_it_may_and_nothing_else() {
    let mut server = RedisTlsServer::start(RULES);
    let port = server.port().to_string();
    assert_eq!(
        server.url(),
        format!("rediss://delayline:secret@localhost:{port}")
    );
    let ask = |commands: &[&str]| over_tls(&port, &server.ca(), &[], commands);

    let said = ask(&["AUTH delayline secret", "SET {shop}1 value", "GET {shop}1"]);
    assert!(said.starts_with("+OK\r\n+OK\r\n$5\r\nvalue\r\n"), "{said}");
    let said = ask(&["PING"]);
    assert!(said.starts_with("-NOAUTH"), "{said}");
    let said = ask(&["AUTH delayline wrong"]);
    assert!(said.starts_with("-WRONGPASS"), "{said}");
    for command in [
        "DEL {shop}1",
        "GET shop",
        "SUBSCRIBE {shop}",
        "FLUSHALL",
        "CLIENT LIST",
    ] {
        let said = ask(&["AUTH delayline secret", command]);
        assert!(said.starts_with("+OK\r\n-NOPERM"), "{command}: {said}");
    }
    let strange = RedisTlsServer::start(RULES);
    assert_eq!(
        over_tls(&port, &strange.ca(), &[], &["PING"]),
        "",
        "by another authority"
    );

    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    plain.write_all(b"PING\r\n").unwrap();
    let mut answer = Vec::new();
    // Whether it answers in TLS or just closes, it must do so.
    if let Err(error) = plain.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    assert!(
        !answer.starts_with(b"+PONG") && !answer.starts_with(b"-"),
        "{answer:?}"
    );

    let value: String = server.admin().get("{shop}1").unwrap();
    assert_eq!(value, "value");
    server.kill();
    server.restart();
    let value: Option<String> = server.admin().get("{shop}1").unwrap();
    assert_eq!(value, None);
}

#[test]
fn a_server_that_wants_certificates_serves_only_clients_that_have_one() {
    let server = RedisTlsServer::start_for_certified(RULES);
    let port = server.port().to_string();
    let commands = ["AUTH delayline secret", "PING"];
    assert_eq!(over_tls(&port, &server.ca(), &[], &commands), "");
    let (certificate, key) = server.client_certificate();
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let said = over_tls(
        &port,
        &server.ca(),
        &["-cert", certificate, "-key", key],
        &commands,
    );
    assert!(said.starts_with("+OK\r\n+PONG\r\n"), "{said}");
}

#[test]
fn sentinels_promote_the_replica_of_a_killed_or_stopped_master() {
    let mut servers = RedisSentinel::start();
    assert_eq!(servers.master(), 0);
    assert_eq!(servers.url().matches("127.0.0.1:").count(), 3);
    assert!(servers.url().starts_with("redis+sentinel://"));
    assert!(servers.url().ends_with("/mymaster"));
    let refused = servers.admin(1).set::<_, _, ()>("key", "value").unwrap_err();
    assert!(is(&refused, ServerErrorKind::ReadOnly), "{refused}");

    let former = servers.kill_master();
    let master = servers.wait_for_promotion(former);
    assert_eq!((former, master), (0, 1));
    let () = servers.admin(master).set("key", "value").unwrap();
    servers.restart(former);
    let master = servers.wait_for_replica();
    let value: String = servers.admin(1 - master).get("key").unwrap();
    assert_eq!(value, "value");

    servers.signal(master, "STOP");
    assert_eq!(servers.wait_for_promotion(master), 1 - master);
}
