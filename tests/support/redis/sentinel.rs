//! A master, its replica, and sentinels that watch over them.

use std::fs;
use std::path::Path;

use redis::{FromRedisValue, Value};
use tempfile::TempDir;

use super::patience::until;
use super::process::Process;
use super::security::Account;

const SENTINELS: usize = 3;
const NAME: &str = "mymaster";

/// Whom servers take those for who say only a password.
const DEFAULT: Account = Account {
    name: "default",
    password: "secret",
};

/// Two servers, of which three sentinels make the one a master that lives; killed when this is dropped.
///
/// The servers are known by their number. The first begins as master.
#[derive(Debug)]
pub(crate) struct RedisSentinel {
    servers: Vec<Process>,
    sentinels: Vec<Process>,
    has_password: bool,
    _folder: TempDir,
}

impl RedisSentinel {
    /// Starts them, with servers that keep nothing on disk and sentinels that notice within seconds that a master is
    /// dead.
    pub(crate) fn start() -> Self {
        Self::start_with(false)
    }

    /// Starts them with a password that the servers ask for, and the sentinels do not.
    pub(crate) fn start_with_password() -> Self {
        Self::start_with(true)
    }

    fn start_with(has_password: bool) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let password: &[&str] = if has_password {
            &[
                "--requirepass",
                DEFAULT.password,
                "--masterauth",
                DEFAULT.password,
            ]
        } else {
            &[]
        };
        let master = start_server(&folder.path().join("master"), password);
        let port = master.port().to_string();
        let replica = start_server(
            &folder.path().join("replica"),
            &[password, &["--replicaof", "127.0.0.1", &port]].concat(),
        );
        let start_sentinel = |number| {
            let folder = folder.path().join(format!("sentinel-{number}"));
            start_sentinel(&folder, &port, has_password)
        };
        let sentinels = (0..SENTINELS).map(start_sentinel).collect();
        let servers = Self {
            servers: vec![master, replica],
            sentinels,
            has_password,
            _folder: folder,
        };
        until("the sentinels know all", || {
            servers.sentinels.iter().all(knows_all).then_some(())
        });
        servers
    }

    /// The URL with all sentinels and the name by which they know the master, and with the password if there is one.
    pub(crate) fn url(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(address).collect();
        let password = match self.account() {
            Some(account) => format!(":{}@", account.password),
            None => String::new(),
        };
        format!("redis+sentinel://{password}{}/{NAME}", sentinels.join(","))
    }

    fn account(&self) -> Option<&Account> {
        self.has_password.then_some(&DEFAULT)
    }

    /// Which server is the master, as soon as all sentinels agree on it.
    pub(crate) fn master(&self) -> usize {
        until("all sentinels agree on the master", || self.agreed())
    }

    /// Where a server listens.
    pub(crate) fn address(&self, server: usize) -> String {
        address(&self.servers[server])
    }

    /// A blocking connection of the test's own to a server.
    pub(crate) fn admin(&self, server: usize) -> redis::Connection {
        self.servers[server].admin(self.account())
    }

    /// Ends the master at once, as a crash does, and says which server it was.
    pub(crate) fn kill_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].kill();
        master
    }

    /// Starts a server again where it was, after it was killed: empty, and a master until the sentinels see it.
    pub(crate) fn restart(&mut self, server: usize) {
        self.servers[server].restart();
    }

    /// Sends a server a signal, such as `STOP`.
    pub(crate) fn signal(&self, server: usize, name: &str) {
        self.servers[server].signal(name);
    }

    /// Sends a sentinel a signal, such as `STOP`. Of one that is stopped nothing can be asked any more.
    pub(crate) fn signal_sentinel(&self, sentinel: usize, name: &str) {
        self.sentinels[sentinel].signal(name);
    }

    /// Waits until all sentinels name another master than `former`, and it is one; gives that master.
    pub(crate) fn wait_for_promotion(&self, former: usize) -> usize {
        until("the replica is promoted", || {
            let master = self.agreed().filter(|&master| master != former)?;
            let info: String = ask(&self.servers[master], self.account(), &["INFO", "replication"]);
            info.contains("role:master").then_some(master)
        })
    }

    /// Waits until one server is the master and the other has all that it has, so that the sentinels could promote it;
    /// gives the master. That is the one last promoted, unless the machine stood still for so long that they thought it
    /// dead.
    pub(crate) fn wait_for_replica(&self) -> usize {
        until("one server follows the other", || {
            let master = self.agreed()?;
            // Who makes the other a replica cuts its connections.
            let mut admin = self.servers[1 - master].try_admin(self.account()).ok()?;
            let info: String = redis::cmd("INFO").arg("replication").query(&mut admin).ok()?;
            let follows = info.contains("master_link_status:up");
            (follows && self.sentinels.iter().all(knows_all)).then_some(master)
        })
    }

    /// Which server all sentinels name as master, if that is the same.
    fn agreed(&self) -> Option<usize> {
        let named = |sentinel| {
            let (_, port): (String, u16) =
                ask(sentinel, None, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
            self.servers.iter().position(|server| server.port() == port)
        };
        let mut named = self.sentinels.iter().map(named);
        let master = named.next()?;
        named.all(|other| other == master).then_some(master)?
    }
}

fn start_server(folder: &Path, args: &[&str]) -> Process {
    Process::start(folder.to_owned(), |port| {
        let port = port.to_string();
        [
            "--port",
            &port,
            "--save",
            "",
            "--appendonly",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ]
        .iter()
        .chain(args)
        .map(|&arg| arg.to_owned())
        .collect()
    })
}

fn start_sentinel(folder: &Path, master: &str, has_password: bool) -> Process {
    fs::create_dir_all(folder).expect("a folder");
    let file = folder.join("sentinel.conf");
    // Sentinels keep what they learn in this file.
    let mut settings = format!(
        "sentinel monitor {NAME} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {NAME} 2000\n\
         sentinel failover-timeout {NAME} 2000\n"
    );
    if has_password {
        settings += &format!("sentinel auth-pass {NAME} {}\n", DEFAULT.password);
    }
    fs::write(&file, settings).expect("a file");
    let file = file.to_str().expect("a path in UTF-8");
    let sentinel = Process::start(folder.to_owned(), |port| {
        [file, "--sentinel", "--port", &port.to_string()]
            .map(str::to_owned)
            .to_vec()
    });
    // They look at servers every ten seconds else, and believe only what they have seen for some looks.
    let () = ask(
        &sentinel,
        None,
        &["SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "500"],
    );
    sentinel
}

/// Whether a sentinel could replace the master: it knows the other sentinels, and a replica that has all.
fn knows_all(sentinel: &Process) -> bool {
    let number = |fields: &Value, name: &str| field(fields, name).and_then(|text| text.parse().ok());
    let master: Value = ask(sentinel, None, &["SENTINEL", "MASTER", NAME]);
    let replicas: Vec<Value> = ask(sentinel, None, &["SENTINEL", "REPLICAS", NAME]);
    number(&master, "num-other-sentinels") == Some(SENTINELS - 1)
        && field(&master, "flags").as_deref() == Some("master")
        && replicas.iter().any(|replica| {
            field(replica, "flags").as_deref() == Some("slave")
                && field(replica, "master-link-status").as_deref() == Some("ok")
        })
}

/// One of the fields that a sentinel tells of a server.
fn field(fields: &Value, name: &str) -> Option<String> {
    let fields = Vec::<String>::from_redis_value(fields.clone()).ok()?;
    let mut pairs = fields.chunks_exact(2);
    pairs.find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}

fn address(process: &Process) -> String {
    format!("127.0.0.1:{}", process.port())
}

fn ask<T: FromRedisValue>(server: &Process, account: Option<&Account>, command: &[&str]) -> T {
    let mut asked = redis::Cmd::new();
    asked.arg(command);
    asked
        .query(&mut server.admin(account))
        .expect("an answer of a test's server")
}
