//! Runs two servers over one store and one broker, and harms them.

use std::process::Command;

use tokio::task::block_in_place;

use super::plan::Fault;
use super::rows::Kept;
use super::way::Way;
use crate::gateway;
use crate::rocketmq_servers::{BROKER, RocketMqServers};
use crate::server::Server;

/// The servers, and what they stand on.
pub(super) struct World<'a> {
    kept: &'a Kept,
    brokers: RocketMqServers,
    config: String,
    /// None: it was killed.
    servers: [Option<Server>; 2],
    way: Way,
}

impl<'a> World<'a> {
    pub(super) fn start(kept: &'a Kept, name: &str) -> Self {
        block_in_place(|| {
            let brokers = RocketMqServers::start(&["--levels", "1s 2s 5s 10s"]);
            let store = format!("history = \"all\"\n[store]\nurl = \"{}\"\n", kept.url());
            let config = [store, gateway::config(&brokers.nameserver, name)].concat();
            let servers = [(); 2].map(|()| Server::configured(&config));
            let way = Way::to([0, 1].map(|server: usize| servers[server].url.clone()));
            Self {
                kept,
                brokers,
                config,
                servers: servers.map(Some),
                way,
            }
        })
    }

    pub(super) fn nameserver(&self) -> &str {
        &self.brokers.nameserver
    }

    pub(super) fn way(&self) -> Way {
        self.way.clone()
    }

    /// Lets a fault begin or end.
    pub(super) async fn apply(&mut self, fault: Fault, begins: bool) {
        match (fault, begins) {
            (Fault::SessionsEnded, true) => self.kept.end_sessions().await,
            (Fault::SessionsEnded, false) => {}
            (Fault::Killed(server), true) => block_in_place(|| drop(self.servers[server].take())),
            (Fault::Killed(server), false) => {
                let started = block_in_place(|| Server::configured(&self.config));
                self.way.set(server, &started.url);
                self.servers[server] = Some(started);
            }
            (Fault::Stopped(server), true) => self.signal(server, "STOP"),
            (Fault::Stopped(server), false) => self.signal(server, "CONT"),
            (Fault::BrokerKilled, true) => block_in_place(|| self.brokers.kill(BROKER)),
            (Fault::BrokerKilled, false) => block_in_place(|| self.brokers.start_again()),
        }
    }

    fn signal(&self, server: usize, name: &str) {
        let process = self.servers[server].as_ref().unwrap().process().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status();
        assert!(sent.unwrap().success());
    }
}
