//! A Redis server: one that has the rows, or one that carries wake-ups.

use std::fs;
use std::net::SocketAddr;

use async_trait::async_trait;
use redis::Value;
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::{Place, unknown};
use crate::fault::Harm;
use crate::redis_servers::RedisServer;

/// The users: the test may do everything, and so may the service, until its rights are withdrawn.
const USERS: &str = "user default on nopass ~* &* +@all\nuser delayline on >secret ~* &* +@all\n";

/// Returns the arguments of a server that loses no acknowledged write when it is killed, and a folder that they need.
pub(super) fn durable() -> (Vec<String>, TempDir) {
    let folder = TempDir::new().unwrap();
    let users = folder.path().join("users.acl");
    fs::write(&users, USERS).unwrap();
    let args = [
        "--appendonly",
        "yes",
        // With "everysec" it answers before it writes, for as long as two seconds, while the disk is busy.
        "--appendfsync",
        "always",
        "--aclfile",
        users.to_str().unwrap(),
    ];
    (args.map(str::to_owned).to_vec(), folder)
}

/// Returns the commands for a harm, for each server.
pub(super) fn asked(harm: Harm, applied: bool) -> &'static [&'static [&'static str]] {
    match (harm, applied) {
        (Harm::Revoked, true) => &[&["ACL", "SETUSER", "delayline", "-eval", "-evalsha"]],
        (Harm::Revoked, false) => &[&["ACL", "SETUSER", "delayline", "+eval", "+evalsha"]],
        (Harm::LockedOut, true) => &[
            &["ACL", "SETUSER", "delayline", "off"],
            &["CLIENT", "KILL", "USER", "delayline"],
        ],
        (Harm::LockedOut, false) => &[&["ACL", "SETUSER", "delayline", "on"]],
        // A replica of a server that does not exist: it keeps what it has.
        (Harm::ReadOnly, true) => &[&["REPLICAOF", "127.0.0.1", "1"]],
        (Harm::ReadOnly, false) => &[&["REPLICAOF", "NO", "ONE"]],
        (Harm::Full, true) => &[&["CONFIG", "SET", "maxmemory", "1"]],
        (Harm::Full, false) => &[&["CONFIG", "SET", "maxmemory", "0"]],
        (Harm::Emptied, true) => &[&["FLUSHALL"]],
        (Harm::Emptied, false) => &[],
        _ => unknown(harm),
    }
}

pub(super) fn ask(admin: &mut redis::Connection, commands: &[&[&str]]) {
    for command in commands {
        let mut asked = redis::Cmd::new();
        asked.arg(command);
        let _: Value = asked.query(admin).unwrap();
    }
}

/// One server that has the rows.
pub(crate) struct OneRedis {
    server: RedisServer,
    _users: TempDir,
}

impl OneRedis {
    pub(crate) fn start() -> Self {
        let (args, users) = durable();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        Self {
            server: RedisServer::start_with(&args),
            _users: users,
        }
    }
}

fn address(server: &RedisServer) -> SocketAddr {
    let url = server.url();
    url.trim_start_matches("redis://").parse().unwrap()
}

fn harm(server: &mut RedisServer, harm: Harm, applied: bool) {
    block_in_place(|| match (harm, applied) {
        (Harm::Killed, true) => server.kill(),
        (Harm::Killed, false) => server.restart(),
        (Harm::Hung, true) => server.signal("STOP"),
        (Harm::Hung, false) => server.signal("CONT"),
        _ => ask(&mut server.admin(), asked(harm, applied)),
    });
}

#[async_trait]
impl Place for OneRedis {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![address(&self.server)]
    }

    fn url(&self, over: &[SocketAddr]) -> String {
        format!("redis://delayline:secret@{}", over[0])
    }

    fn harms(&self) -> Vec<Harm> {
        vec![
            Harm::Killed,
            Harm::Hung,
            Harm::Revoked,
            Harm::LockedOut,
            Harm::ReadOnly,
            Harm::Full,
        ]
    }

    async fn apply(&mut self, what: Harm) {
        harm(&mut self.server, what, true);
    }

    async fn undo(&mut self, what: Harm) {
        harm(&mut self.server, what, false);
    }
}

/// One server that carries wake-ups, and may forget them.
pub(crate) struct WakesInRedis(RedisServer);

impl WakesInRedis {
    pub(crate) fn start() -> Self {
        Self(RedisServer::start())
    }
}

#[async_trait]
impl Place for WakesInRedis {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![address(&self.0)]
    }

    fn url(&self, over: &[SocketAddr]) -> String {
        format!("redis://{}", over[0])
    }

    fn harms(&self) -> Vec<Harm> {
        vec![
            Harm::Killed,
            Harm::Hung,
            Harm::Emptied,
            Harm::ReadOnly,
            Harm::Full,
        ]
    }

    async fn apply(&mut self, what: Harm) {
        harm(&mut self.0, what, true);
    }

    async fn undo(&mut self, what: Harm) {
        harm(&mut self.0, what, false);
    }
}
