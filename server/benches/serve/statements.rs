//! Counts what is asked of a PostgreSQL server, between it and its clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Error;

/// The first message of a client that would like to speak TLS, which is answered without an end of the start.
const TLS_WANTED: u32 = 80_877_103;

/// A port that leads to a server. Its connections end with their ends.
pub(crate) struct Statements {
    /// As its server's, but for the address.
    pub(crate) url: String,
    count: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Statements {
    pub(crate) async fn count_to(url: &str) -> Result<Self, Error> {
        let (_, rest) = url.rsplit_once('@').ok_or("a URL of PostgreSQL names a user")?;
        let (server, _) = rest
            .split_once('/')
            .ok_or("a URL of PostgreSQL names a database")?;
        let target: SocketAddr = server.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = url.replacen(server, &listener.local_addr()?.to_string(), 1);
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    // A connection that breaks is its ends' affair.
                    let _ = relay(client, target, &counted).await;
                });
            }
        });
        Ok(Self {
            url,
            count,
            accepting,
        })
    }

    /// How many statements there have been.
    pub(crate) fn so_far(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Statements {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn relay(client: TcpStream, target: SocketAddr, count: &AtomicU64) -> Result<(), Error> {
    let server = TcpStream::connect(target).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let answering = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let asked = ask(from_client, to_server, count).await;
    answering.await??;
    asked
}

/// Passes on what the client says, message by message: each has a type, but for those of the start, and a length.
async fn ask(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: &AtomicU64) -> Result<(), Error> {
    let mut message = Vec::new();
    let mut has_started = false;
    loop {
        message.clear();
        let head = if has_started { 5 } else { 4 };
        message.resize(head, 0);
        from.read_exact(&mut message).await?;
        let length = number(&message[head - 4..])?;
        let rest = usize::try_from(length)?.checked_sub(4);
        message.resize(head + rest.ok_or("a message is shorter than its length")?, 0);
        from.read_exact(&mut message[head..]).await?;
        if !has_started {
            has_started = number(&message[4..8])? != TLS_WANTED;
        } else if matches!(message[0], b'Q' | b'E') {
            count.fetch_add(1, Ordering::Relaxed);
        }
        to.write_all(&message).await?;
    }
}

fn number(bytes: &[u8]) -> Result<u32, Error> {
    Ok(u32::from_be_bytes(bytes.try_into()?))
}
