//! Tests that the proxy does what it says.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::proxy::{Network, Proxy};

/// How long a silent connection is observed.
const SILENCE: Duration = Duration::from_millis(100);
/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(30);

/// A server that sends its name to each connection, and then echoes.
async fn echo(name: &'static [u8; 1]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                stream.write_all(name).await?;
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    address
}

/// Makes a connection, and reads the name of its server.
async fn connect(proxy: &Proxy, name: &[u8; 1]) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    hears(&mut stream, name).await;
    stream
}

async fn hears(stream: &mut TcpStream, what: &[u8]) {
    let mut heard = vec![0; what.len()];
    timeout(SAFETY, stream.read_exact(&mut heard))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(heard, what);
}

async fn hears_nothing(stream: &mut TcpStream) {
    let heard = timeout(SILENCE, stream.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
}

/// Says whether it works, both ways.
async fn works(stream: &mut TcpStream) {
    stream.write_all(b"!").await.unwrap();
    hears(stream, b"!").await;
}

#[tokio::test]
async fn what_is_frozen_is_silent_and_comes_when_it_is_open_again() {
    let proxy = Proxy::start(echo(b"a").await).await;
    let mut old = connect(&proxy, b"a").await;

    proxy.set(Network::FrozenSoFar);
    old.write_all(b"1").await.unwrap();
    hears_nothing(&mut old).await;
    works(&mut connect(&proxy, b"a").await).await;

    proxy.set(Network::Frozen);
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    hears_nothing(&mut new).await;
    hears_nothing(&mut old).await;

    proxy.set(Network::Unanswered);
    hears(&mut old, b"1").await;
    hears_nothing(&mut new).await;

    proxy.set(Network::Open);
    hears(&mut new, b"a").await;
    works(&mut new).await;
    works(&mut old).await;
}

#[tokio::test]
async fn one_way_is_cut_and_the_other_works() {
    // Not one that answers: otherwise the direction would not show.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();

    proxy.set(Network::DeafServer);
    client.write_all(b"1").await.unwrap();
    server.write_all(b"2").await.unwrap();
    hears(&mut client, b"2").await;
    hears_nothing(&mut server).await;

    proxy.set(Network::DeafClient);
    hears(&mut server, b"1").await;
    server.write_all(b"3").await.unwrap();
    hears_nothing(&mut client).await;

    proxy.set(Network::Open);
    hears(&mut client, b"3").await;
}

#[tokio::test]
async fn connections_are_reset_and_refused_and_led_elsewhere() {
    let proxy = Proxy::start(echo(b"a").await).await;
    let mut first = connect(&proxy, b"a").await;

    proxy.lead_to(echo(b"b").await);
    works(&mut first).await;
    let mut second = connect(&proxy, b"b").await;

    proxy.set(Network::Refusing);
    let refused = async {
        // The change takes effect at once.
        while TcpStream::connect(proxy.address()).await.is_ok() {}
    };
    timeout(SAFETY, refused).await.unwrap();
    works(&mut second).await;

    proxy.reset();
    for stream in [&mut first, &mut second] {
        let error = timeout(SAFETY, stream.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    proxy.set(Network::Open);
    let again = async { while TcpStream::connect(proxy.address()).await.is_err() {} };
    timeout(SAFETY, again).await.unwrap();
    works(&mut connect(&proxy, b"b").await).await;
}

#[tokio::test]
async fn it_is_slow_or_narrow() {
    let proxy = Proxy::start(echo(b"a").await).await;
    let mut stream = connect(&proxy, b"a").await;

    proxy.set(Network::Slow(Duration::from_millis(200)));
    let began = Instant::now();
    works(&mut stream).await;
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );

    proxy.set(Network::Narrow(10_000));
    let began = Instant::now();
    let sent = vec![7; 4_000];
    stream.write_all(&sent).await.unwrap();
    hears(&mut stream, &sent).await;
    works(&mut stream).await;
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_end_is_passed_on_after_what_was_said_before() {
    let proxy = Proxy::start(echo(b"a").await).await;
    let mut stream = connect(&proxy, b"a").await;
    let sent = vec![7; 3_000_000];
    let (mut from, mut to) = stream.split();
    let sending = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let (_, length) = tokio::join!(sending, timeout(SAFETY, from.read_to_end(&mut heard)));
    length.unwrap().unwrap();
    assert!(heard == sent, "{} bytes of {}", heard.len(), sent.len());
}
