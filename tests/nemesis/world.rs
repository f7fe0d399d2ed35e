//! Runs servers, lines between them, and workers: everything that has faults.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::block_in_place;

use crate::fault::{Fault, Harm, Line};
use crate::home::{Address, Kept};
use crate::place::{Place, WakesInRedis};
use crate::plan::Possible;
use crate::process::Process;
use crate::proxy::{Network, Proxy};
use crate::rocketmq_servers::{BROKER, RocketMqServers};
use crate::suspend::{Stopped, signal};
use crate::{claimant, now, worker};

/// The processes with a worker, and after them those that claim without one: to faults all are workers.
const WORKERS: usize = 3;
const CLAIMANTS: usize = 2;
/// The address that the broker reports; a proxy is there.
const BROKER_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A nameserver and a broker that clients find behind a proxy.
pub(crate) fn start_brokers() -> RocketMqServers {
    RocketMqServers::start(&[
        "--levels",
        "1s 2s 5s 10s",
        "--set",
        &format!("brokerIP1={BROKER_HOST}"),
    ])
}

pub(crate) struct World {
    store: Box<dyn Place>,
    precise: Option<WakesInRedis>,
    brokers: RocketMqServers,
    lines: BTreeMap<Line, Vec<Proxy>>,
    workers: Vec<Worker>,
    /// When workers were stopped.
    stops: Vec<Stop>,
    /// How a worker, and a caller, reaches everything.
    pub(crate) for_workers: Address,
    pub(crate) for_callers: Address,
    /// The same for the test itself, over no line.
    pub(crate) for_test: Address,
    folder: TempDir,
}

struct Worker {
    process: Process,
    stopped: Option<(i64, Stopped)>,
}

/// A span in which a worker's process was stopped, in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) process: u32,
    pub(crate) from: i64,
    pub(crate) until: i64,
}

impl World {
    pub(crate) async fn start(
        kept: Kept,
        mut store: Box<dyn Place>,
        precise: Option<WakesInRedis>,
        brokers: RocketMqServers,
    ) -> Self {
        let mut lines = BTreeMap::new();
        let to_store = lead_to(&store.addresses()).await;
        store.announce(&addresses(&to_store)).await;
        let workers_url = store.url(&addresses(&to_store));
        let mut callers_url = workers_url.clone();
        // The nodes of a cluster name each other by one address only.
        if to_store.len() == 1 {
            let callers = lead_to(&store.addresses()).await;
            callers_url = store.url(&addresses(&callers));
            lines.insert(Line::CallersToStore, callers);
        }
        if !to_store.is_empty() {
            lines.insert(Line::WorkersToStore, to_store);
        }
        let test_url = store.url(&store.addresses());
        let mut precise_url = None;
        if let Some(precise) = &precise {
            let proxies = lead_to(&precise.addresses()).await;
            precise_url = Some(precise.url(&addresses(&proxies)));
            lines.insert(Line::ToPrecise, proxies);
        }
        let nameserver: SocketAddr = brokers.nameserver.parse().unwrap();
        let proxies = lead_to(&[nameserver]).await;
        let nameserver = proxies[0].address().to_string();
        lines.insert(Line::ToNameserver, proxies);
        let port = brokers.port(BROKER);
        let listener = TcpListener::bind((BROKER_HOST, port)).await.unwrap();
        let broker = Proxy::start_on(listener, (Ipv4Addr::LOCALHOST, port).into());
        lines.insert(Line::ToBroker, vec![broker]);

        let for_workers = Address {
            kept,
            rows: workers_url,
            precise: precise_url,
            nameserver,
            topic: format!("nemesis-{:016x}", fastrand::u64(..)),
        };
        let over = |rows| Address {
            rows,
            ..for_workers.clone()
        };
        let folder = TempDir::new().unwrap();
        for notes in [STARTS, ENDS] {
            std::fs::write(folder.path().join(notes), "").unwrap();
        }
        Self {
            for_callers: over(callers_url),
            for_test: over(test_url),
            for_workers,
            store,
            precise,
            brokers,
            lines,
            workers: Vec::new(),
            stops: Vec::new(),
            folder,
        }
    }

    pub(crate) fn possible(&self) -> Possible {
        Possible {
            lines: self.lines.keys().copied().collect(),
            workers: WORKERS + CLAIMANTS,
            store: self.store.harms(),
            precise: self.precise.iter().flat_map(Place::harms).collect(),
            broker: vec![Harm::Killed, Harm::Hung],
        }
    }

    /// The file with the starts of handlers and claimants.
    pub(crate) fn starts(&self) -> PathBuf {
        self.folder.path().join(STARTS)
    }

    /// The file with the claimants' ends of claims.
    pub(crate) fn ends(&self) -> PathBuf {
        self.folder.path().join(ENDS)
    }

    pub(crate) fn start_workers(&mut self) {
        for number in 0..WORKERS + CLAIMANTS {
            self.workers.push(self.start_worker(number));
        }
    }

    fn start_worker(&self, number: usize) -> Worker {
        let (address, starts) = (&self.for_workers, self.starts());
        let process = match number {
            0..WORKERS => worker::start(address, &starts),
            _ => claimant::start(address, &starts, &self.ends()),
        };
        Worker {
            process,
            stopped: None,
        }
    }

    /// Returns the most memory that a worker has now.
    pub(crate) fn memory_of_workers(&self) -> u64 {
        let memory = self.workers.iter().map(|worker| worker.process.memory());
        memory.max().unwrap_or(0)
    }

    pub(crate) async fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::Network(line, network) => self.set(line, network),
            Fault::Reset(line) => self.lines[&line].iter().for_each(Proxy::reset),
            Fault::Killed(worker) => self.workers[worker].process.kill(),
            Fault::Still(worker, still) => {
                let worker = &mut self.workers[worker];
                worker.stopped = Some((now(), worker.process.stop(still)));
            }
            Fault::Store(harm) => self.store.apply(harm).await,
            Fault::Precise(harm) => self.precise.as_mut().unwrap().apply(harm).await,
            Fault::Broker(Harm::Killed) => block_in_place(|| self.brokers.kill(BROKER)),
            Fault::Broker(_) => signal(self.brokers.process(BROKER), "STOP"),
        }
    }

    pub(crate) async fn undo(&mut self, fault: Fault) {
        match fault {
            Fault::Network(line, _) => self.set(line, Network::Open),
            Fault::Reset(_) => {}
            Fault::Killed(number) => {
                self.workers[number] = self.start_worker(number);
            }
            Fault::Still(worker, _) => self.let_go_on(worker),
            Fault::Store(harm) => self.store.undo(harm).await,
            Fault::Precise(harm) => self.precise.as_mut().unwrap().undo(harm).await,
            Fault::Broker(Harm::Killed) => block_in_place(|| self.brokers.start_again()),
            Fault::Broker(_) => signal(self.brokers.process(BROKER), "CONT"),
        }
    }

    fn let_go_on(&mut self, worker: usize) {
        let Worker { process, stopped } = &mut self.workers[worker];
        let (from, stopped) = stopped.take().unwrap();
        self.stops.push(Stop {
            process: process.id(),
            from,
            until: now(),
        });
        drop(stopped);
    }

    fn set(&self, line: Line, network: Network) {
        for proxy in &self.lines[&line] {
            proxy.set(network);
        }
    }

    pub(crate) fn stops(&self) -> Vec<Stop> {
        self.stops.clone()
    }

    /// Asserts that all workers live.
    pub(crate) fn assert_workers_live(&mut self) {
        for worker in &mut self.workers {
            worker.process.assert_lives();
        }
    }

    /// Kills all workers.
    pub(crate) fn end_workers(&mut self) {
        self.workers.clear();
    }
}

const STARTS: &str = "starts";
const ENDS: &str = "ends";

async fn lead_to(targets: &[SocketAddr]) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    for &target in targets {
        proxies.push(Proxy::start(target).await);
    }
    proxies
}

fn addresses(proxies: &[Proxy]) -> Vec<SocketAddr> {
    proxies.iter().map(Proxy::address).collect()
}
