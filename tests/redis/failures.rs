//! Tests servers that go, come back, hang, forget or are full; and backends that end.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;

#[tokio::test]
async fn after_flushall_and_script_flush_what_is_sent_arrives() {
    let server = RedisServer::start();
    let sender = backend(&server);
    let receiver = Arc::new(backend(&server));
    send_until_taken(
        &sender,
        &[departure(1, Duration::from_millis(700)), departure(2, HOUR)],
    )
    .await;
    for number in 3..8 {
        let receiving = tokio::spawn({
            let receiver = receiver.clone();
            async move { receiver.receive(10).await.unwrap() }
        });
        until_listening(&server, 1).await;
        let () = ask(&server, &["FLUSHALL"]);
        let () = ask(&server, &["SCRIPT", "FLUSH"]);
        send_until_taken(&sender, &[departure(number, Duration::from_millis(5))]).await;
        assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(number)]);
    }
}

#[tokio::test]
async fn while_the_server_is_down_sending_fails_and_receiving_waits() {
    let mut server = RedisServer::start();
    let sender = backend(&server);
    let receiver = backend(&server);
    send_until_taken(&sender, &[departure(1, HOUR)]).await;
    let receiving = tokio::spawn(async move {
        let mut received = Vec::new();
        while received.len() < 2 {
            received.extend(wakes(&receiver.receive(10).await.unwrap()));
        }
        received
    });
    until_listening(&server, 1).await;

    server.kill();
    let batch = [departure(2, Duration::ZERO), departure(3, Duration::ZERO)];
    let error = safely(sender.send(&batch)).await.unwrap_err();
    assert_eq!(error.failed, [0, 1]);
    assert!(error.cause.is_transient(), "{error}");
    assert!(safely(sender.health()).await.unwrap_err().is_transient());
    safely(sender.acknowledge(vec![Arrival {
        wake: wake(1),
        ticket: 0,
    }]))
    .await;
    assert!(!receiving.is_finished());

    server.restart();
    // The first call after the loss succeeds: it is not answered with an old failure.
    send_at_once(&sender, &batch).await;
    until_healthy(&sender).await;
    assert_eq!(safely(receiving).await.unwrap(), [wake(2), wake(3)]);
}

#[tokio::test]
async fn a_server_that_was_restarted_in_between_is_not_noticed_by_senders() {
    let mut server = RedisServer::start();
    let backend = backend(&server);
    send_until_taken(&backend, &[departure(1, HOUR)]).await;
    server.kill();
    server.restart();
    send_at_once(&backend, &[departure(2, HOUR)]).await;
}

#[tokio::test]
async fn a_server_that_hangs_fails_senders_and_is_used_again_when_it_answers() {
    let server = RedisServer::start();
    let backend = backend(&server);
    until_healthy(&backend).await;
    server.signal("STOP");
    let error = safely(backend.send(&[departure(1, HOUR)])).await.unwrap_err();
    assert!(error.cause.is_transient(), "{error}");
    assert!(safely(backend.health()).await.unwrap_err().is_transient());
    server.signal("CONT");
    send_until_taken(&backend, &[departure(2, HOUR)]).await;
}

#[tokio::test]
async fn a_server_that_is_down_at_first_is_found_later() {
    let mut server = RedisServer::start();
    server.kill();
    let backend = Arc::new(backend(&server));
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    assert!(
        safely(backend.send(&[departure(1, Duration::ZERO)]))
            .await
            .is_err()
    );
    server.restart();
    send_until_taken(&backend, &[departure(1, Duration::ZERO)]).await;
    assert_eq!(wakes(&safely(receiving).await.unwrap().unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_full_server_refuses_new_wake_ups_for_now_and_hands_out_those_it_has() {
    let server = RedisServer::start();
    let backend = backend(&server);
    send_until_taken(&backend, &[departure(1, Duration::ZERO)]).await;
    let () = ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let error = safely(backend.send(&[departure(2, Duration::ZERO)]))
        .await
        .unwrap_err();
    assert!(error.cause.is_transient(), "{error}");
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_backend_that_only_sends_does_not_listen_and_one_that_is_closed_is_gone() {
    let server = RedisServer::start();
    let backend = Arc::new(backend(&server));
    send_until_taken(&backend, &[departure(1, HOUR)]).await;
    let connections = |backends: usize| {
        move |clients: &String| clients.lines().count() == backends + 1 // and the test's own
    };
    until(&server, &["CLIENT", "LIST"], connections(1)).await;

    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    until_listening(&server, 1).await;
    until(&server, &["CLIENT", "LIST"], connections(2)).await;

    safely(backend.close()).await.unwrap();
    let pending = safely(receiving).await.unwrap().unwrap_err();
    let later = safely(backend.receive(10)).await.unwrap_err();
    let sent = safely(backend.send(&[departure(2, HOUR)]))
        .await
        .unwrap_err()
        .cause;
    let health = safely(backend.health()).await.unwrap_err();
    for error in [pending, later, sent, health] {
        assert_eq!(error.to_string(), "backend redis: closed");
        assert!(!error.is_transient());
    }
    until(&server, &["CLIENT", "LIST"], connections(0)).await;
    safely(backend.close()).await.unwrap();
}

#[tokio::test]
async fn a_backend_that_is_closed_before_it_received_does_not_start_to() {
    let server = RedisServer::start();
    let backend = backend(&server);
    send_until_taken(&backend, &[departure(1, Duration::ZERO)]).await;
    safely(backend.close()).await.unwrap();
    assert!(safely(backend.receive(10)).await.is_err());
}

#[tokio::test]
async fn a_dropped_backend_lets_go_of_its_connections() {
    let server = RedisServer::start();
    let backend = backend(&server);
    send_until_taken(&backend, &[departure(1, Duration::ZERO)]).await;
    safely(backend.receive(1)).await.unwrap();
    drop(backend);
    until(&server, &["CLIENT", "LIST"], |clients: &String| {
        clients.lines().count() == 1
    })
    .await;
}

/// Relays connections to the server; those made until it is cut then lead to nowhere, without an end that TCP shows.
struct Relay {
    url: String,
    cut: watch::Sender<bool>,
}

impl Relay {
    async fn start(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = server.url().replace("redis://", "");
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect(&server).await.unwrap();
                let mut is_cut = is_cut.clone();
                let lasts = *is_cut.borrow();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = is_cut.changed(), if !lasts => std::future::pending().await,
                    }
                });
            }
        });
        Self { url, cut }
    }
}

#[tokio::test]
async fn a_connection_that_leads_to_nowhere_is_replaced() {
    let server = RedisServer::start();
    let relay = Relay::start(&server).await;
    let backend = Arc::new(RedisBackend::new(&relay.url).unwrap());
    send_until_taken(&backend, &[departure(1, HOUR)]).await;
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await.unwrap() }
    });
    until_asleep(&server).await;
    relay.cut.send(true).unwrap();
    let error = safely(backend.send(&[departure(2, HOUR)])).await.unwrap_err();
    assert!(error.cause.is_transient(), "{error}");
    send_until_taken(&backend, &[departure(3, Duration::ZERO)]).await;
    // Found when the receiver polls by itself, without a message.
    assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(3)]);
}
