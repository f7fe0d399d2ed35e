//! Asks over HTTP with as little of a client as possible, so that the server is what is measured.

use std::io::Write as _;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Error;

/// A connection that is kept, with one request after the other.
pub(crate) struct Connection {
    stream: TcpStream,
    host: String,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            host: address.to_string(),
            sent: Vec::new(),
            received: Vec::new(),
        })
    }

    /// Sends a body of JSON, and gives that of the answer, whose status must be this one.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        status: u16,
    ) -> Result<&[u8], Error> {
        self.sent.clear();
        write!(
            self.sent,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        )?;
        self.stream.write_all(&self.sent).await?;
        self.received.clear();
        let head = loop {
            self.read().await?;
            if let Some(end) = place_of(b"\r\n\r\n", &self.received) {
                break end + 4;
            }
        };
        let (answered, length) = status_and_length(&self.received[..head])?;
        while self.received.len() < head + length {
            self.read().await?;
        }
        let body = &self.received[head..];
        if answered != status {
            let body = String::from_utf8_lossy(body);
            return Err(format!("{method} {path} is answered {answered}: {body}").into());
        }
        Ok(body)
    }

    async fn read(&mut self) -> Result<(), Error> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err("the server has ended a connection".into()),
            _ => Ok(()),
        }
    }
}

fn status_and_length(head: &[u8]) -> Result<(u16, usize), Error> {
    const LENGTH: &str = "content-length: ";
    let head = std::str::from_utf8(head)?;
    let status = head.get(9..12).ok_or("an answer has no status")?.parse()?;
    let length = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix(LENGTH))
        .ok_or("an answer does not say its length")?
        .parse()?;
    Ok((status, length))
}

fn place_of(part: &[u8], all: &[u8]) -> Option<usize> {
    all.windows(part.len()).position(|window| window == part)
}

/// Where a server listens, by the URL that it says.
pub(crate) fn address_of(url: &str) -> Result<SocketAddr, Error> {
    let address = url.strip_prefix("http://").ok_or("a server has no address")?;
    Ok(address.parse()?)
}

/// Does something in one thread of its own, beside whatever else goes on in this process.
pub(crate) async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let in_one_thread = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(work())
    };
    tokio::task::spawn_blocking(in_one_thread).await?
}
