//! Runs a master, its replica, and sentinels that watch over them.

use std::fs;
use std::path::{Path, PathBuf};

use redis::{FromRedisValue, Value};
use tempfile::TempDir;

use super::patience::until;
use super::process::Process;
use super::security::{ADMIN, Account, Security, USER};

const SENTINELS: usize = 3;
const NAME: &str = "mymaster";

/// The account of a connection that gives only a password.
const DEFAULT: Account = Account {
    name: "default",
    password: "secret",
};

/// Two servers, of which three sentinels make a living one the master; killed when this is dropped.
///
/// The servers are known by their number. The first begins as master.
#[derive(Debug)]
pub(crate) struct RedisSentinel {
    servers: Vec<Process>,
    sentinels: Vec<Process>,
    access: Access,
    _folder: TempDir,
}

/// The clients that the servers accept.
#[derive(Debug)]
enum Access {
    All,
    /// Clients with the password. The sentinels ask for none.
    Known,
    /// Users, over TLS, which the sentinels speak as well; these ask for no user.
    Users(Security),
}

impl Access {
    /// The account of the test itself at a server.
    fn account(&self) -> Option<&Account> {
        match self {
            Self::All => None,
            Self::Known => Some(&DEFAULT),
            Self::Users(_) => Some(&ADMIN),
        }
    }

    /// The arguments of a server.
    fn of_server(&self, port: u16) -> Vec<String> {
        let mut args = match self {
            Self::Users(security) => security.args(port),
            Self::All | Self::Known => vec!["--port".to_owned(), port.to_string()],
        };
        if let Self::Known = self {
            let password = DEFAULT.password;
            args.extend(["--requirepass", password, "--masterauth", password].map(str::to_owned));
        }
        args
    }

    /// The arguments of a sentinel.
    fn of_sentinel(&self, port: u16) -> Vec<String> {
        match self {
            Self::Users(security) => security.tls_args(port),
            Self::All | Self::Known => vec!["--port".to_owned(), port.to_string()],
        }
    }
}

impl RedisSentinel {
    /// Starts them, with servers that keep nothing on disk and sentinels that notice within seconds that a master is
    /// dead.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| Access::All)
    }

    /// Starts them with a password that the servers ask for, and the sentinels do not.
    pub(crate) fn start_with_password() -> Self {
        Self::start_with(|_| Access::Known)
    }

    /// Starts all of them over TLS, with servers whose user `delayline` may do what `rules` say, and nothing else.
    pub(crate) fn start_with_tls(rules: &str) -> Self {
        Self::start_with(|folder| Access::Users(Security::make(folder, rules, false)))
    }

    fn start_with(access: impl FnOnce(&Path) -> Access) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let access = access(folder.path());
        let master = start_server(&folder.path().join("master"), &access, &[]);
        let port = master.port().to_string();
        let of_master = ["--replicaof", "127.0.0.1", &port];
        let replica = start_server(&folder.path().join("replica"), &access, &of_master);
        let start_sentinel = |number| {
            let folder = folder.path().join(format!("sentinel-{number}"));
            start_sentinel(&folder, &port, &access)
        };
        let sentinels = (0..SENTINELS).map(start_sentinel).collect();
        let servers = Self {
            servers: vec![master, replica],
            sentinels,
            access,
            _folder: folder,
        };
        until("the sentinels know all", || {
            servers.sentinels.iter().all(knows_all).then_some(())
        });
        servers
    }

    /// The URL with all sentinels and the name by which they know the master, and with password and user if the servers
    /// ask for them.
    pub(crate) fn url(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(address).collect();
        let sentinels = sentinels.join(",");
        match self.access {
            Access::All => format!("redis+sentinel://{sentinels}/{NAME}"),
            Access::Known => format!("redis+sentinel://:{}@{sentinels}/{NAME}", DEFAULT.password),
            Access::Users(_) => {
                let Account { name, password } = USER;
                format!("rediss+sentinel://{name}:{password}@{sentinels}/{NAME}")
            }
        }
    }

    /// The certificate of the servers' and sentinels' authority, in PEM.
    pub(crate) fn ca(&self) -> PathBuf {
        match &self.access {
            Access::Users(security) => security.certificates().ca(),
            Access::All | Access::Known => panic!("these speak no TLS"),
        }
    }

    fn account(&self) -> Option<&Account> {
        self.access.account()
    }

    /// Returns which server is the master, as soon as all sentinels agree on it.
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

    /// Kills the master at once, as a crash does, and returns which server it was.
    pub(crate) fn kill_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].kill();
        master
    }

    /// Stops the master, so that it hangs, and returns which server it was.
    pub(crate) fn stop_master(&mut self) -> usize {
        let master = self.master();
        self.signal(master, "STOP");
        master
    }

    /// Restarts a server after it was killed: empty, and a master until the sentinels see it.
    pub(crate) fn restart(&mut self, server: usize) {
        self.servers[server].restart();
    }

    /// Sends a server a signal, such as `STOP`.
    pub(crate) fn signal(&self, server: usize, name: &str) {
        self.servers[server].signal(name);
    }

    /// Sends a sentinel a signal, such as `STOP`. A stopped one cannot be asked any more.
    pub(crate) fn signal_sentinel(&self, sentinel: usize, name: &str) {
        self.sentinels[sentinel].signal(name);
    }

    /// Waits until all sentinels name another master than `former`, and it is one; returns that master.
    pub(crate) fn wait_for_promotion(&self, former: usize) -> usize {
        until("the replica is promoted", || {
            let master = self.agreed().filter(|&master| master != former)?;
            let info: String = ask(&self.servers[master], self.account(), &["INFO", "replication"]);
            info.contains("role:master").then_some(master)
        })
    }

    /// Waits until one server is the master and the other has all that it has, so that the sentinels could promote it;
    /// returns the master. That is the one last promoted, unless the machine stood still for so long that they thought
    /// it dead.
    pub(crate) fn wait_for_replica(&self) -> usize {
        until("one server follows the other", || {
            let master = self.agreed()?;
            // A server that makes the other a replica cuts its connections.
            let mut admin = self.servers[1 - master].try_admin(self.account()).ok()?;
            let info: String = redis::cmd("INFO").arg("replication").query(&mut admin).ok()?;
            let follows = info.contains("master_link_status:up");
            (follows && self.sentinels.iter().all(knows_all)).then_some(master)
        })
    }

    /// Returns which server all sentinels name as master, if that is the same.
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

fn start_server(folder: &Path, access: &Access, args: &[&str]) -> Process {
    Process::start(folder.to_owned(), |port| {
        let kept = ["--save", "", "--appendonly", "no"];
        let common = [&kept[..], &["--repl-diskless-sync-delay", "0"], args].concat();
        let common = common.into_iter().map(str::to_owned);
        access.of_server(port).into_iter().chain(common).collect()
    })
}

fn start_sentinel(folder: &Path, master: &str, access: &Access) -> Process {
    fs::create_dir_all(folder).expect("a folder");
    let file = folder.join("sentinel.conf");
    // Sentinels keep what they learn in this file.
    let mut settings = format!(
        "sentinel monitor {NAME} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {NAME} 2000\n\
         sentinel failover-timeout {NAME} 2000\n"
    );
    if let Some(Account { name, password }) = access.account() {
        settings += &format!("sentinel auth-user {NAME} {name}\nsentinel auth-pass {NAME} {password}\n");
    }
    fs::write(&file, settings).expect("a file");
    let file = file.to_str().expect("a path in UTF-8");
    let sentinel = Process::start(folder.to_owned(), |port| {
        let file = [file, "--sentinel"].map(str::to_owned);
        file.into_iter().chain(access.of_sentinel(port)).collect()
    });
    // Otherwise they check servers every ten seconds, and believe only what they have seen several times.
    let () = ask(
        &sentinel,
        None,
        &["SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "500"],
    );
    sentinel
}

/// Says whether a sentinel could replace the master: it knows the other sentinels, and a replica that has all.
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

/// Reads one of the fields that a sentinel reports of a server.
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
