//! Counts what is asked of a database, between it and who asks.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Error;

/// How messages are told from each other. None of them over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    MySql,
}

/// A port here that leads to a server, for as long as this is kept.
pub(crate) struct Relay {
    pub(crate) port: u16,
    asked: Arc<AtomicU64>,
    _accepting: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn to(host: &str, port: u16, protocol: Protocol) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own_port = listener.local_addr()?.port();
        let asked = Arc::new(AtomicU64::new(0));
        let (counted, host) = (Arc::clone(&asked), host.to_owned());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut relaying = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (counted, host) = (Arc::clone(&counted), host.clone());
                relaying.spawn(async move {
                    // A connection that breaks is its ends' affair.
                    let _ = relay(client, (&host, port), protocol, &counted).await;
                });
            }
        });
        Ok(Self {
            port: own_port,
            asked,
            _accepting: accepting,
        })
    }

    /// How many statements there have been.
    pub(crate) fn asked(&self) -> f64 {
        self.asked.load(Ordering::Relaxed) as f64
    }
}

async fn relay(
    client: TcpStream,
    server: (&str, u16),
    protocol: Protocol,
    asked: &AtomicU64,
) -> Result<(), Error> {
    let server = TcpStream::connect(server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        asked = ask(from_client, to_server, protocol, asked) => asked,
        answered = answer(from_server, to_client) => answered,
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Result<(), Error> {
    copy(&mut from, &mut to).await?;
    Ok(())
}

/// Passes on what the client says, message by message.
async fn ask(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    protocol: Protocol,
    asked: &AtomicU64,
) -> Result<(), Error> {
    let mut message = Vec::new();
    // The first message of PostgreSQL has no type.
    let mut is_first = true;
    loop {
        let (head, length) = match protocol {
            #[cfg(feature = "postgres")]
            Protocol::Postgres => {
                let head = if is_first { 4 } else { 5 };
                message.resize(head, 0);
                from.read_exact(&mut message).await?;
                let length = u32::from_be_bytes(message[head - 4..].try_into()?);
                (head, usize::try_from(length)?.saturating_sub(4))
            }
            #[cfg(feature = "mysql")]
            Protocol::MySql => {
                message.resize(4, 0);
                from.read_exact(&mut message).await?;
                let length = u32::from_le_bytes([message[0], message[1], message[2], 0]);
                (4, usize::try_from(length)?)
            }
        };
        message.resize(head + length, 0);
        from.read_exact(&mut message[head..]).await?;
        let is_statement = match protocol {
            // A query, or an execution of a prepared one.
            #[cfg(feature = "postgres")]
            Protocol::Postgres => !is_first && matches!(message[0], b'Q' | b'E'),
            // The first packet of a command: a query, or an execution of a prepared one.
            #[cfg(feature = "mysql")]
            Protocol::MySql => message[3] == 0 && matches!(message.get(4), Some(0x03 | 0x17)),
        };
        asked.fetch_add(u64::from(is_statement), Ordering::Relaxed);
        is_first = false;
        to.write_all(&message).await?;
        message.clear();
    }
}
