//! A Redis Cluster that has the rows.

use std::net::SocketAddr;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::Place;
use super::redis::{ask, asked, durable};
use crate::fault::Harm;
use crate::redis_servers::RedisCluster;

/// Three masters with a replica each. No replica takes over, since it would lose what it does not have yet; that is
/// documented and tested elsewhere: here every answer must hold.
pub(crate) struct Cluster {
    cluster: RedisCluster,
    /// The next master for a fault of a single one.
    next: usize,
    /// The addresses by which the nodes name each other.
    announced: Vec<SocketAddr>,
    _users: TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let (mut args, users) = durable();
        args.extend(["--cluster-replica-no-failover", "yes"].map(str::to_owned));
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        Self {
            cluster: RedisCluster::start_with(&args),
            next: 0,
            announced: Vec::new(),
            _users: users,
        }
    }
}

/// The first three are masters, and stay so.
const MASTERS: usize = 3;

#[async_trait]
impl Place for Cluster {
    fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.cluster.nodes().map(|node| self.cluster.address(node));
        addresses.map(|address| address.parse().unwrap()).collect()
    }

    fn url(&self, over: &[SocketAddr]) -> String {
        let nodes: Vec<_> = over.iter().map(SocketAddr::to_string).collect();
        format!("redis+cluster://delayline:secret@{}", nodes.join(","))
    }

    async fn announce(&mut self, over: &[SocketAddr]) {
        self.announced = over.to_vec();
        block_in_place(|| {
            for node in self.cluster.nodes() {
                self.announce_node(node);
            }
            // All of them know it, and say so.
            let known = || {
                self.cluster.nodes().all(|node| {
                    let mut nodes = redis::cmd("CLUSTER");
                    let nodes: String = nodes.arg("NODES").query(&mut self.cluster.admin(node)).unwrap();
                    over.iter().all(|address| nodes.contains(&format!("{address}@")))
                })
            };
            while !known() {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            self.cluster.wait_until_whole();
        });
    }

    fn harms(&self) -> Vec<Harm> {
        vec![
            Harm::Killed,
            Harm::Hung,
            Harm::Revoked,
            Harm::LockedOut,
            Harm::Full,
        ]
    }

    async fn apply(&mut self, harm: Harm) {
        block_in_place(|| match harm {
            Harm::Killed => self.cluster.kill(self.next),
            Harm::Hung => self.cluster.signal(self.next, "STOP"),
            _ => self.all_masters(harm, true),
        });
    }

    async fn undo(&mut self, harm: Harm) {
        block_in_place(|| {
            match harm {
                Harm::Killed => {
                    self.cluster.restart(self.next);
                    self.announce_node(self.next);
                }
                Harm::Hung => self.cluster.signal(self.next, "CONT"),
                _ => self.all_masters(harm, false),
            }
            self.next = (self.next + 1) % MASTERS;
        });
    }
}

impl Cluster {
    fn announce_node(&self, node: usize) {
        let port = self.announced[node].port().to_string();
        let announce = ["CONFIG", "SET", "cluster-announce-port", &port];
        ask(&mut self.cluster.admin(node), &[&announce]);
    }

    fn all_masters(&self, harm: Harm, applied: bool) {
        for node in 0..MASTERS {
            ask(&mut self.cluster.admin(node), asked(harm, applied));
        }
    }
}
