//! A connection that ends when its client takes nothing of an answer, as what it waits for is held in memory.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connections::Usage;

/// For how long a client may take nothing.
const LIMIT: Duration = Duration::from_secs(30);

/// A connection to a client.
pub(super) struct Connection {
    stream: TcpStream,
    usage: Arc<Usage>,
    /// While the client takes nothing: how long it still may.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, usage: Arc<Usage>) -> Self {
        Self {
            stream,
            usage,
            stalled: None,
        }
    }

    /// What came of a write, or that it has waited for too long.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        came: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.usage.goes(came.is_pending());
        if came.is_ready() {
            self.stalled = None;
            return came;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(LIMIT)));
        let over = stalled.as_mut().poll(context);
        over.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let came = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.usage.came();
        }
        came
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, came)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(context, came)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::super::connections::Connections;
    use super::*;

    async fn connected() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let usage = Connections::new(1).open().await;
        (Connection::new(server, usage), client)
    }

    /// More than the systems keep under way.
    const MUCH: usize = 32 << 20;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_left() {
        let (mut server, _client) = connected().await;
        let begin = Instant::now();
        let error = server.write_all(&vec![0; MUCH]).await.unwrap_err();
        assert_eq!((error.kind(), begin.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_part_now_and_then_is_served() {
        let (mut server, mut client) = connected().await;
        let begin = Instant::now();
        let answer = vec![0; MUCH];
        let (written, read) = tokio::join!(
            async {
                server.write_all(&answer).await?;
                server.shutdown().await
            },
            async {
                let mut part = vec![0; MUCH / 4];
                for _ in 0..3 {
                    sleep(LIMIT - Duration::from_secs(1)).await;
                    client.read_exact(&mut part).await?;
                }
                client.read_to_end(&mut Vec::new()).await
            }
        );
        written.unwrap();
        assert_eq!(read.unwrap(), MUCH / 4);
        assert!(begin.elapsed() > 2 * LIMIT);
    }
}
