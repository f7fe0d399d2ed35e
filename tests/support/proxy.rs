//! Runs a TCP proxy of a test's own, with the faults of networks.
#![allow(dead_code)] // Not every test that has one does everything with it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// How many chunks are in flight, each way, before the sender is held up.
const ON_THE_WAY: usize = 64;

/// The state of the network. It loses nothing: as with TCP, what did not get through does so when it is open again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Network {
    /// Everything gets through.
    #[default]
    Open,
    /// Existing connections fall silent; new ones work: a firewall has forgotten them.
    FrozenSoFar,
    /// All is silent. A new connection is made, as the backlog of a server does it, and no more.
    Frozen,
    /// Existing connections work; new ones are made, and not answered.
    Unanswered,
    /// Existing connections work; new connections are refused.
    Refusing,
    /// Each way takes so much longer.
    Slow(Duration),
    /// The server receives nothing.
    DeafServer,
    /// The client receives nothing.
    DeafClient,
    /// So many bytes a second on each connection, each way.
    Narrow(u32),
}

#[derive(Clone, Copy, Debug)]
enum Way {
    ToServer,
    ToClient,
}

/// The state that all connections follow.
#[derive(Clone, Copy, Debug)]
struct Control {
    network: Network,
    /// Connections below this number were there when the network last changed.
    so_far: u64,
    /// Those below this one are reset.
    reset: u64,
    target: SocketAddr,
}

impl Control {
    fn passes(&self, number: u64, way: Way) -> bool {
        match (self.network, way) {
            (Network::FrozenSoFar, _) => number >= self.so_far,
            (Network::Frozen, _)
            | (Network::DeafServer, Way::ToServer)
            | (Network::DeafClient, Way::ToClient) => false,
            _ => true,
        }
    }
}

/// A port of the loopback that leads to a server. Its connections end with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    control: watch::Sender<Control>,
    /// How many connections there have been.
    count: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy to `target`; everything gets through.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        Self::start_on(listen_anywhere().await, target)
    }

    /// Starts one on an existing listener.
    pub(crate) fn start_on(listener: TcpListener, target: SocketAddr) -> Self {
        let address = listener.local_addr().expect("where it listens");
        let (control, watching) = watch::channel(Control {
            network: Network::Open,
            so_far: 0,
            reset: 0,
            target,
        });
        let count = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, watching, count.clone()));
        Self {
            address,
            control,
            count,
            accepting,
        }
    }

    /// Returns where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Rewrites a URL of its target to its own address.
    pub(crate) fn url(&self, of_target: &str) -> String {
        let target = self.control.borrow().target.to_string();
        assert!(of_target.contains(&target), "no {target} in {of_target}");
        of_target.replace(&target, &self.address.to_string())
    }

    /// Sets the state of the network.
    pub(crate) fn set(&self, network: Network) {
        self.control.send_modify(|control| {
            control.network = network;
            control.so_far = self.connections();
        });
    }

    /// Resets all connections that are there.
    pub(crate) fn reset(&self) {
        self.control
            .send_modify(|control| control.reset = self.connections());
    }

    /// Sends new connections elsewhere, as a name whose address has changed; existing ones stay where they are.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.control.send_modify(|control| control.target = target);
    }

    /// Counts all connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Below the ports that systems take for outgoing connections, so that no process takes it while connections are refused.
async fn listen_anywhere() -> TcpListener {
    loop {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(20_000..32_000))).await {
            return listener;
        }
    }
}

async fn accept(listener: TcpListener, mut control: watch::Receiver<Control>, count: Arc<AtomicU64>) {
    let address = listener.local_addr().expect("where it listens");
    let mut listener = Some(listener);
    loop {
        let network = control.borrow_and_update().network;
        if network == Network::Refusing {
            listener = None;
        } else if listener.is_none() {
            listener = Some(TcpListener::bind(address).await.expect("its port"));
        }
        let takes_none = matches!(network, Network::Frozen | Network::Unanswered);
        match &listener {
            // The system accepts those that are not taken.
            Some(listener) if !takes_none => tokio::select! {
                biased;
                changed = control.changed() => if changed.is_err() { return },
                Ok((client, _)) = listener.accept() => {
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(connect(client, number, control.clone()));
                }
            },
            _ => {
                if control.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Serves one connection, until both ends have ended it, it is reset, or the proxy is gone.
async fn connect(mut client: TcpStream, number: u64, control: watch::Receiver<Control>) {
    let target = control.borrow().target;
    // Where no process listens, the client's connection ends, too.
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("no delay");
    }
    let relaying = async {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::join!(
            relay(from_client, to_server, number, Way::ToServer, control.clone()),
            relay(from_server, to_client, number, Way::ToClient, control.clone()),
        )
    };
    let mut reset = control.clone();
    tokio::select! {
        // Data that was held back until then is lost, also where the network is open right after it.
        biased;
        _ = reset.wait_for(|control| number < control.reset) => {
            for stream in [&client, &server] {
                // Its end is then a reset. One that has broken by itself cannot be asked.
                drop(stream.set_zero_linger());
            }
        }
        _ = relaying => {}
    }
}

/// A chunk, and when it is due at the other end; an empty one is the end.
type Sent = (Instant, Vec<u8>);

/// Copies one direction, until one end has sent everything or the other does not want it.
async fn relay(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    number: u64,
    way: Way,
    control: watch::Receiver<Control>,
) {
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    let hearing = hear(from, sender, control.clone());
    // A broken one has sent everything. The other direction goes on.
    let (_, _) = tokio::join!(hearing, say(to, receiver, number, way, control));
}

async fn hear(
    mut from: ReadHalf<'_>,
    sender: mpsc::Sender<Sent>,
    control: watch::Receiver<Control>,
) -> Option<()> {
    loop {
        let mut chunk = vec![0; CHUNK];
        let length = tokio::select! {
            length = from.read(&mut chunk) => length.unwrap_or(0),
            () = sender.closed() => return None,
        };
        chunk.truncate(length);
        let delay = match control.borrow().network {
            Network::Slow(delay) => delay,
            _ => Duration::ZERO,
        };
        sender.send((Instant::now() + delay, chunk)).await.ok()?;
        if length == 0 {
            return None;
        }
    }
}

async fn say(
    mut to: WriteHalf<'_>,
    mut receiver: mpsc::Receiver<Sent>,
    number: u64,
    way: Way,
    mut control: watch::Receiver<Control>,
) -> io::Result<()> {
    while let Some((due, chunk)) = receiver.recv().await {
        sleep_until(due).await;
        let gone = || io::Error::other("the proxy is gone");
        let passes = |control: &Control| control.passes(number, way);
        control.wait_for(passes).await.map_err(|_| gone())?;
        if chunk.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&chunk).await?;
        let network = control.borrow_and_update().network;
        if let Network::Narrow(rate) = network {
            let takes = Duration::from_secs(1).mul_f64(chunk.len() as f64 / f64::from(rate));
            tokio::select! {
                () = sleep(takes) => {}
                _ = control.wait_for(|now| now.network != network) => {}
            }
        }
    }
    Ok(())
}
