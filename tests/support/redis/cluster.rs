//! Runs a Redis Cluster.

mod migration;
mod view;

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, ToRedisArgs};
use tempfile::TempDir;

pub(crate) use self::migration::Migration;
use self::view::View;
use super::patience::until;
use super::ports::free_port;
use super::process::Process;
use super::security::{ADMIN, Account, Security, USER};

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
const SLOTS: usize = 16_384;
/// After which a node takes another one for dead.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// Three masters with a replica each, on free ports of the loopback; killed when this is dropped.
///
/// Nodes are known by their number. The first three begin as masters.
#[derive(Debug)]
pub(crate) struct RedisCluster {
    nodes: Vec<Node>,
    security: Option<Security>,
    _folder: TempDir,
}

#[derive(Debug)]
struct Node {
    process: Process,
    /// Its name in the cluster, across restarts.
    id: String,
}

impl RedisCluster {
    /// Starts one that keeps nothing on disk, and notices within seconds that a node is dead.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further arguments of each node.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_in(TempDir::new().expect("a temporary folder"), None, args)
    }

    /// Starts one over TLS whose user `delayline` may do what `rules` say, and nothing else.
    pub(crate) fn start_with_tls(rules: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let security = Security::make(folder.path(), rules, false);
        Self::start_in(folder, Some(security), &[])
    }

    fn start_in(folder: TempDir, security: Option<Security>, args: &[&str]) -> Self {
        let account = security.as_ref().map(|_| &ADMIN);
        let nodes = (0..NODES)
            .map(|node| {
                let process = Process::start(folder.path().join(node.to_string()), |port| {
                    settings(security.as_ref(), port)
                        .into_iter()
                        .chain(args.iter().map(|&arg| arg.to_owned()))
                        .collect()
                });
                let id = ask(&mut process.admin(account), &["CLUSTER", "MYID"]);
                Node { process, id }
            })
            .collect();
        let cluster = Self {
            nodes,
            security,
            _folder: folder,
        };
        cluster.join();
        cluster
    }

    /// Makes one cluster of nodes that do not know each other.
    fn join(&self) {
        for node in self.nodes() {
            // Different ones, so that the nodes need not find out by themselves which one prevails.
            let () = self.ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()]);
        }
        for node in 0..MASTERS {
            let [first, next] = [node, node + 1].map(|node| node * SLOTS / MASTERS);
            let () = self.ask(
                node,
                &[
                    "CLUSTER",
                    "ADDSLOTSRANGE",
                    &first.to_string(),
                    &(next - 1).to_string(),
                ],
            );
        }
        let mut met = None;
        until("all nodes know each other", || {
            // A node gives up one that does not answer within the node timeout, as where a machine stands still.
            if met.is_none_or(|met: Instant| met.elapsed() > NODE_TIMEOUT) {
                self.meet();
                met = Some(Instant::now());
            }
            self.nodes()
                .all(|node| self.view(node).knows(self.nodes.iter().map(|node| &node.id)))
                .then_some(())
        });
        for node in MASTERS..NODES {
            let master = &self.nodes[node - MASTERS].id;
            let () = self.ask(node, &["CLUSTER", "REPLICATE", master]);
        }
        self.wait_until_whole();
    }

    /// Introduces all nodes to the first one, which does nothing to those that it knows.
    fn meet(&self) {
        for node in 1..NODES {
            let port = self.nodes[node].process.port().to_string();
            let bus: (String, String) = self.ask(node, &["CONFIG", "GET", "cluster-port"]);
            let () = self.ask(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus.1]);
        }
    }

    /// The URL with all nodes, and with user and password if it asks for them.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes().map(|node| self.address(node)).collect();
        let nodes = nodes.join(",");
        match self.security {
            None => format!("redis+cluster://{nodes}"),
            Some(_) => format!("rediss+cluster://{}:{}@{nodes}", USER.name, USER.password),
        }
    }

    /// The numbers of all nodes, also of those that are dead.
    pub(crate) fn nodes(&self) -> Range<usize> {
        0..self.nodes.len()
    }

    /// Where a node listens, as the others name it in redirections.
    pub(crate) fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].process.port())
    }

    /// The certificate of the nodes' authority, in PEM, if they speak TLS.
    pub(crate) fn ca(&self) -> PathBuf {
        let security = self.security.as_ref().expect("a cluster over TLS");
        security.certificates().ca()
    }

    /// A blocking connection of the test's own to a node, which may do everything.
    pub(crate) fn admin(&self, node: usize) -> redis::Connection {
        self.nodes[node].process.admin(self.account())
    }

    fn account(&self) -> Option<&Account> {
        self.security.as_ref().map(|_| &ADMIN)
    }

    /// The slot of a key.
    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        self.ask(self.any_node(), &["CLUSTER", "KEYSLOT", key])
    }

    /// Which node is master of a slot, as soon as all living nodes agree on it.
    pub(crate) fn master_of(&self, slot: u16) -> usize {
        until("all nodes agree on the master of a slot", || {
            let id = self.agreed()?.master_of(slot)?;
            Some(self.number_of(&id))
        })
    }

    /// The same for many slots, in their order, by one read.
    pub(crate) fn masters_of(&self, slots: &[u16]) -> Vec<usize> {
        until("all nodes agree on the masters of slots", || {
            let view = self.agreed()?;
            let master_of = |slot: &u16| Some(self.number_of(&view.master_of(*slot)?));
            slots.iter().map(master_of).collect()
        })
    }

    /// The living masters that have slots, the lowest number first.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let view = until("all nodes agree", || self.agreed());
        let masters = view.masters();
        self.living()
            .filter(|&node| masters.contains(&self.nodes[node].id))
            .collect()
    }

    /// Sends all living masters the same command, such as `FLUSHALL`, `SCRIPT FLUSH` or `CLIENT KILL TYPE normal`.
    pub(crate) fn ask_masters(&self, command: &[&str]) {
        for node in self.masters() {
            let _: redis::Value = self.ask(node, command);
        }
    }

    /// Ends a node at once, as a crash does.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].process.kill();
    }

    /// Restarts a node after it was killed: empty, but it knows the cluster.
    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node].process.restart();
    }

    /// Sends a node a signal, such as `STOP`.
    pub(crate) fn signal(&self, node: usize, name: &str) {
        self.nodes[node].process.signal(name);
    }

    /// Waits until a slot has another, living master than `former`, and all living nodes agree; returns that master.
    pub(crate) fn wait_for_failover(&self, slot: u16, former: usize) -> usize {
        until("a replica takes over", || {
            let id = self.agreed().filter(|_| self.works())?.master_of(slot)?;
            let master = self.number_of(&id);
            (master != former && self.lives(master)).then_some(master)
        })
    }

    /// Waits until all nodes live and agree, and every replica has what its master has.
    pub(crate) fn wait_until_whole(&self) {
        until("the cluster is whole", || self.is_whole().then_some(()));
    }

    /// Moves a slot with all its keys to another master, so that clients get redirections.
    pub(crate) fn migrate_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        migration.move_keys();
        migration.finish();
    }

    /// Begins to move a slot to another master.
    pub(crate) fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::begin(self, slot, to)
    }

    fn lives(&self, node: usize) -> bool {
        self.nodes[node].process.lives()
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        self.nodes().filter(|&node| self.lives(node))
    }

    fn any_node(&self) -> usize {
        self.living().next().expect("a living node")
    }

    fn number_of(&self, id: &str) -> usize {
        let found = self.nodes.iter().position(|node| node.id == id);
        found.expect("a node of this cluster")
    }

    fn view(&self, node: usize) -> View {
        View::parse(&self.ask::<String>(node, &["CLUSTER", "NODES"]))
    }

    /// Returns what all living nodes see, if that is the same.
    fn agreed(&self) -> Option<View> {
        let mut views = self.living().map(|node| self.view(node));
        let view = views.next().expect("a living node");
        views.all(|other| other == view).then_some(view)
    }

    fn is_whole(&self) -> bool {
        self.nodes().all(|node| self.lives(node))
            && self
                .agreed()
                .is_some_and(|view| view.masters().len() == MASTERS && view.replicas() == NODES - MASTERS)
            && self.works()
            && self.replicas_follow()
    }

    /// Whether all living nodes serve.
    fn works(&self) -> bool {
        self.living().all(|node| {
            let info: String = self.ask(node, &["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok")
        })
    }

    /// Whether all living replicas have what their masters have.
    fn replicas_follow(&self) -> bool {
        self.living().all(|node| {
            let info: String = self.ask(node, &["INFO", "replication"]);
            info.contains("role:master") || info.contains("master_link_status:up")
        })
    }

    fn ask<T: FromRedisValue>(&self, node: usize, command: &[impl ToRedisArgs]) -> T {
        ask(&mut self.admin(node), command)
    }
}

fn ask<T: FromRedisValue>(connection: &mut redis::Connection, command: &[impl ToRedisArgs]) -> T {
    let mut asked = redis::Cmd::new();
    asked.arg(command);
    asked.query(connection).expect("an answer of the test's cluster")
}

fn settings(security: Option<&Security>, port: u16) -> Vec<String> {
    let mut args = match security {
        None => vec!["--port".to_owned(), port.to_string()],
        Some(security) => {
            let mut args = security.args(port);
            args.extend(["--tls-cluster", "yes"].map(str::to_owned));
            args
        }
    };
    let bus = free_port().to_string();
    let timeout = NODE_TIMEOUT.as_millis().to_string();
    args.extend(
        [
            ("--cluster-enabled", "yes"),
            ("--cluster-port", &bus),
            // A dead master is replaced soon, whatever its replica missed.
            ("--cluster-node-timeout", &timeout),
            ("--cluster-replica-validity-factor", "0"),
            ("--cluster-require-full-coverage", "no"),
            // Replicas change their master only by a test's commands.
            ("--cluster-allow-replica-migration", "no"),
            ("--repl-diskless-sync-delay", "0"),
            ("--save", ""),
            ("--appendonly", "no"),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value.to_owned()]),
    );
    args
}
