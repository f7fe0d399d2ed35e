//! Tests servers and topics that end, are missing, or go away.

use std::net::TcpListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::servers::{BROKER, RocketMqServers};
use super::*;

/// A master that the nameserver knows, and that answers nothing: connections wait to be accepted.
struct Silent {
    _listener: TcpListener,
    /// The nameserver forgets it with this.
    _registered: TcpStream,
}

impl Silent {
    async fn register(nameserver: &str, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // `REGISTER_BROKER`, with no topics.
        let header = format!(
            r#"{{"code":103,"language":"JAVA","version":435,"opaque":1,"flag":0,"extFields":{{"brokerName":"{name}",
            "brokerAddr":"{address}","clusterName":"silent","haServerAddr":"","brokerId":"0","bodyCrc32":"0",
            "compressed":"false"}}}}"#
        );
        let length = u32::try_from(header.len()).unwrap();
        let mut registered = TcpStream::connect(nameserver).await.unwrap();
        let frame = [
            &(length + 4).to_be_bytes()[..],
            &length.to_be_bytes(),
            header.as_bytes(),
        ];
        registered.write_all(&frame.concat()).await.unwrap();
        let length = registered.read_u32().await.unwrap();
        let mut answer = vec![0; usize::try_from(length).unwrap()];
        registered.read_exact(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains(r#""code":0"#), "{answer}");
        Self {
            _listener: listener,
            _registered: registered,
        }
    }
}

#[tokio::test]
async fn closing_ends_a_receiver_and_everything_after() {
    let backend = Place::new().connect().await;
    let receiver = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    timeout(SAFETY, backend.close())
        .await
        .expect("it closes")
        .unwrap();
    let ended = timeout(SAFETY, receiver)
        .await
        .expect("it ends")
        .unwrap()
        .unwrap_err();
    assert!(ended.to_string().contains("closed"), "{ended}");
    timeout(SAFETY, backend.close())
        .await
        .expect("it is closed already")
        .unwrap();
    assert!(
        timeout(SAFETY, backend.receive(10))
            .await
            .expect("it ends")
            .is_err()
    );
    assert!(timeout(SAFETY, backend.health()).await.expect("it ends").is_err());
    let error = timeout(SAFETY, backend.send(&departures(0..2, ONE)))
        .await
        .expect("it ends")
        .unwrap_err();
    assert_eq!(error.failed, [0, 1]);
    assert!(!error.cause.is_transient(), "{error}");
}

#[tokio::test]
async fn dropping_without_close_is_harmless() {
    let backend = Place::new().connect().await;
    send(&backend, departures(0..40, ONE)).await;
    let arrivals = timeout(SAFETY, backend.receive(10))
        .await
        .expect("it arrives")
        .unwrap();
    assert!(!arrivals.is_empty());
    drop(backend);
}

#[tokio::test]
async fn an_unreachable_nameserver_is_a_transient_error_that_names_it() {
    let nameserver = format!("127.0.0.1:{}", free_port());
    let connecting = RocketMqBackend::connect(nameserver.as_str());
    let error = timeout(SAFETY, connecting)
        .await
        .expect("in bounded time")
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    let told = error.to_string();
    assert!(told.contains(&nameserver) && !told.contains("advice"), "{told}");
    assert_eq!(format!("{error:?}"), told);
}

#[tokio::test]
async fn a_broker_that_registered_an_address_of_its_own_world_is_told_with_it_and_its_setting() {
    let elsewhere = "127.0.0.99";
    let servers = RocketMqServers::start(&["--set", &format!("brokerIP1={elsewhere}")]);
    let connecting = RocketMqBackend::connect(servers.nameserver.as_str());
    let error = timeout(SAFETY, connecting)
        .await
        .expect("in bounded time")
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    let told = error.to_string();
    let address = format!("{elsewhere}:{}", servers.port(BROKER));
    assert!(told.contains(&address) && told.contains("brokerIP1"), "{told}");
    assert_eq!(told.matches("backend rocketmq").count(), 1, "{told}");
    println!("{told}");
}

/// Together they would take longer than the first check may.
#[tokio::test(flavor = "multi_thread")]
async fn several_silent_brokers_keep_no_process_from_starting_as_long_as_one_answers() {
    let servers = RocketMqServers::start(&["--levels", LEVELS]);
    let mut silent = Vec::new();
    for name in ["a", "b", "x", "y", "z"] {
        silent.push(Silent::register(&servers.nameserver, name).await);
    }
    let backend = connect_to(&servers.nameserver).await;
    send(&backend, departures(0..20, ONE)).await;
    assert_eq!(receive_all(&backend, 20).await.len(), 20);
    backend.close().await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let error = RocketMqBackend::connect("localhost").await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Invalid {
                field: "nameservers",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_fails_sends_in_bounded_time_and_is_used_again_when_it_is_back() {
    let servers = RocketMqServers::start(&["--levels", LEVELS]);
    let backend = connect_to(&servers.nameserver).await;
    send(&backend, departures(0..10, TWO)).await;
    let receiver = tokio::spawn({
        let backend = backend.clone();
        async move { receive_all(&backend, 20).await }
    });
    servers.kill(BROKER);
    // Often enough that the client gives the broker up for the next 30 s.
    for _ in 0..5 {
        let error = timeout(SAFETY, backend.send(&departures(10..20, TWO)))
            .await
            .expect("in bounded time")
            .unwrap_err();
        assert_eq!(error.failed, Vec::from_iter(0..10));
        assert!(error.cause.is_transient(), "{error}");
        assert!(
            timeout(SAFETY, backend.health())
                .await
                .expect("in bounded time")
                .is_err()
        );
    }
    servers.start_again();
    // A backend of its own finds the broker again, and so must this one.
    let other = RocketMqBackend::connect(servers.nameserver.as_str())
        .await
        .unwrap();
    other.close().await.unwrap();
    let mut asked = 0;
    while let Err(error) = backend.health().await {
        asked += 1;
        // Before the client would try by itself, 30 s after it has given the broker up.
        assert!(asked < 100, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    timeout(SAFETY, async {
        while backend.send(&departures(10..20, TWO)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        receiver.await.unwrap()
    })
    .await
    .expect("it is used again");
    backend.close().await.unwrap();
}
