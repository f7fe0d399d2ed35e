//! Accepts connections and answers what comes on them, by HTTP/1.1 only.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Peer;
use super::admission::body_with;
use super::connection::Connection;
use super::connections::{Connections, HEAD, Usage};

/// How many bytes of what comes, and of what goes, are kept for a connection. The head of a request has no more.
const BUFFER: usize = 32 << 10;
/// For how long a server that stops waits for a head of which a part has come.
const STOPPING: Duration = Duration::from_secs(1);

/// That a connection was needed for another client before its request had come.
#[derive(Debug, thiserror::Error)]
#[error("the connection has made way for another one")]
struct MadeWay;

/// Answers until `stopping`, and then ends when all is answered that has come. No more than `limit` connections are open
/// at once.
pub(crate) async fn serve(
    mut listener: TcpListener,
    router: Router,
    limit: usize,
    mut stopping: watch::Receiver<bool>,
) {
    let connections = Connections::new(limit);
    let mut open = JoinSet::new();
    let stops = stopping.clone();
    let accepting = async {
        loop {
            let (stream, address) = tokio::select! {
                accepted = Listener::accept(&mut listener) => accepted,
                // What one has used is given back.
                Some(_) = open.join_next() => continue,
            };
            let usage = connections.open().await;
            open.spawn(answer(stream, address, router.clone(), usage, stops.clone()));
        }
    };
    tokio::select! {
        // Also when the sender is gone.
        _ = stopping.wait_for(|stop| *stop) => {}
        () = accepting => {}
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Answers what comes on a connection until it ends.
async fn answer(
    stream: TcpStream,
    address: SocketAddr,
    router: Router,
    usage: Arc<Usage>,
    mut stopping: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let answering = usage.answer();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(Peer::from(address)));
        let response = router.call(request);
        async move {
            let answering = answering.ok_or(MadeWay)?;
            let response = response.await.unwrap_or_else(|never| match never {});
            Ok::<_, MadeWay>(response.map(|body| body_with(body, answering)))
        }
    });
    let mut builder = http1::Builder::new();
    // The time of a head is limited here, as that for the next request is another one.
    builder.max_buf_size(BUFFER).header_read_timeout(None);
    let io = TokioIo::new(Connection::new(stream, Arc::clone(&usage)));
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut stops_at = None;
    loop {
        let until = usage.until();
        // A head that has begun is not waited for when the server stops.
        let until = match stops_at.filter(|_| usage.has_begun()) {
            Some(at) => until.map(|until| until.min(at)),
            None => until,
        };
        if until.is_some_and(|until| until <= Instant::now()) {
            tracing::debug!(from = %address, "a connection is closed, as no request has come");
            return;
        }
        // A head that begins meanwhile is not over sooner.
        let soon = Instant::now() + HEAD;
        let look_again = until.map_or(soon, |until| until.min(soon));
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, from = %address, "a connection ended before its answer");
                }
                return;
            }
            () = usage.closing() => return,
            _ = stopping.wait_for(|stop| *stop), if stops_at.is_none() => {
                stops_at = Some(Instant::now() + STOPPING);
                connection.as_mut().graceful_shutdown();
            }
            () = sleep_until(look_again) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;

    use super::super::connections::IDLE;
    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n";
    const HALF: &[u8] = b"GET / HTTP/1.1\r\nhost: ";
    /// For how long an answer takes.
    const ANSWERS: Duration = Duration::from_secs(20);

    /// More than the systems keep under way.
    const MUCH: usize = 32 << 20;

    struct Serving {
        address: SocketAddr,
        stop: watch::Sender<bool>,
        serving: JoinHandle<()>,
    }

    impl Serving {
        async fn start() -> Self {
            Self::of(10).await
        }

        /// With so many connections at once.
        async fn of(limit: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let slowly = async || {
                tokio::time::sleep(ANSWERS).await;
                "answered"
            };
            let much = async || vec![b'x'; MUCH];
            let router = Router::new().route("/", get(slowly)).route("/much", get(much));
            let (stop, stopping) = watch::channel(false);
            let serving = tokio::spawn(serve(listener, router, limit, stopping));
            Self {
                address,
                stop,
                serving,
            }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }
    }

    /// What comes until the connection ends, be it reset.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        String::from_utf8(rest).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_is_waited_for_and_not_for_ever() {
        let serving = Serving::start().await;
        for sent in [&b""[..], HALF] {
            let mut stream = serving.connect().await;
            let begin = Instant::now();
            stream.write_all(sent).await.unwrap();
            assert_eq!(rest(&mut stream).await, "");
            assert_eq!(begin.elapsed().as_secs(), HEAD.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_between_requests_and_not_for_ever() {
        let serving = Serving::start().await;
        let mut stream = serving.connect().await;
        let begin = Instant::now();
        for _ in 0..2 {
            stream.write_all(REQUEST).await.unwrap();
            let mut answer = [0; 1_024];
            let length = stream.read(&mut answer).await.unwrap();
            assert!(answer[..length].starts_with(b"HTTP/1.1 200"));
            tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
        }
        rest(&mut stream).await;
        assert_eq!(begin.elapsed().as_secs(), (2 * (ANSWERS + IDLE)).as_secs() - 1);
        // A head that begins has its time, and no more.
        let mut stream = serving.connect().await;
        stream.write_all(REQUEST).await.unwrap();
        tokio::time::sleep(ANSWERS + Duration::from_secs(11)).await;
        let begin = Instant::now();
        stream.write_all(HALF).await.unwrap();
        rest(&mut stream).await;
        assert_eq!(begin.elapsed().as_secs(), HEAD.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_answers_what_has_come_and_waits_for_nothing_else() {
        let serving = Serving::start().await;
        let (mut answered, mut half) = (serving.connect().await, serving.connect().await);
        let mut silent = serving.connect().await;
        let begin = Instant::now();
        answered.write_all(REQUEST).await.unwrap();
        half.write_all(HALF).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        serving.stop.send_replace(true);
        assert_eq!(rest(&mut silent).await, "");
        assert_eq!(begin.elapsed().as_secs(), 0);
        assert_eq!(rest(&mut half).await, "");
        assert_eq!(begin.elapsed().as_secs(), 1);
        assert!(rest(&mut answered).await.ends_with("answered"));
        serving.serving.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), ANSWERS.as_secs());
    }

    #[tokio::test]
    async fn a_client_that_takes_its_answer_is_not_closed_for_one_that_is_silent() {
        let serving = Serving::of(2).await;
        let mut takes = serving.connect().await;
        let request = b"GET /much HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        takes.write_all(request).await.unwrap();
        // What the system does not keep of its answer waits for its client from now on.
        takes.read_exact(&mut [0; 12]).await.unwrap();
        let mut silent = serving.connect().await;
        let mut third = serving.connect().await;
        third.write_all(request).await.unwrap();
        assert_eq!(rest(&mut silent).await, "");
        third.read_exact(&mut [0; 12]).await.unwrap();
        let answer = rest(&mut takes).await;
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body.len(), MUCH);
    }
}
