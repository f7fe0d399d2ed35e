//! Tests that secrets stay secret: in a process of its own, as it listens to everything that is logged.
#![allow(clippy::unwrap_used)]

#[path = "support/logged.rs"]
mod logged;
#[path = "support/rocketmq.rs"]
mod servers;

use std::time::Duration;

use delayline::backend::{Backend, Departure, RocketMqBackend, Wake};
use delayline::rocketmq::RocketMqOptions;
use delayline::{Error, TaskId};
use tokio::time::timeout;

use self::logged::Logged;
use self::servers::RocketMqServers;

/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(300);
const ONE: Duration = Duration::from_secs(1);
const WRONG: &str = "a-secret-that-is-wrong";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_no_error_and_no_debug_shows_a_secret() {
    let logged = Logged::by_process(tracing::Level::TRACE);
    let servers = RocketMqServers::start(&["--acl", "--levels", "1s 2s"]);
    let (access_key, secret_key) = servers.account("admin");
    let options = RocketMqOptions::new(&servers.nameserver).credentials(&access_key, &secret_key);
    let mut shown = format!("{options:?} {options:#?}");

    let wrong = RocketMqOptions::new(&servers.nameserver).credentials(&access_key, WRONG);
    let error = connect(wrong).await.unwrap_err();
    shown += &format!("{error} {error:?} {error:#?}");

    let backend = connect(options).await.unwrap();
    shown += &format!("{backend:?}");
    let wake = Wake {
        id: TaskId::from_bytes([7; 16]),
        kind: "order.cancel".into(),
        version: 1,
    };
    let mut batch = vec![Departure { wake, delay: ONE }; 3];
    batch[0].delay = Duration::from_millis(1);
    let error = backend.send(&batch).await.unwrap_err();
    shown += &format!("{error} {error:?}");
    let arrivals = timeout(SAFETY, backend.receive(10))
        .await
        .expect("it arrives")
        .unwrap();
    backend.acknowledge(arrivals).await;
    backend.close().await.unwrap();

    let logged = logged.text();
    // It did listen: to the client, too.
    assert!(logged.contains("rocketmq_client_rust") && logged.contains("rocketmq_transport"));
    for (place, text) in [("shown", &shown), ("logged", &logged)] {
        for secret in [secret_key.as_str(), WRONG] {
            let found = text.lines().find(|line| line.contains(secret));
            assert_eq!(found, None, "{place}");
        }
    }
    // The account's name may be shown; so the right place was searched.
    assert!(shown.contains(&access_key));
}

/// Connects, and retries transient errors.
async fn connect(options: RocketMqOptions) -> Result<RocketMqBackend, Error> {
    timeout(SAFETY, async {
        loop {
            match RocketMqBackend::connect(options.clone()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(ONE).await,
                outcome => return outcome,
            }
        }
    })
    .await
    .expect("in bounded time")
}
