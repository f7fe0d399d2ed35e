//! Wake-ups that no worker takes: in a process of its own, as it listens to the log.
#![allow(clippy::unwrap_used)]

#[path = "support/logged.rs"]
mod logged;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use delayline::TaskId;
use delayline::backend::{Backend, Departure, RocketMqBackend, Wake};
use delayline::rocketmq::RocketMqOptions;
use tokio::time::timeout;

use self::logged::Logged;

/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(300);
const STOPPED: &str = "a broker delivers wake-ups and no worker consumes them";
const FLOWS: &str = "the wake-ups of a broker are consumed again";

/// Waits until the log has a text.
async fn until_said(logged: &Logged, text: &str) {
    let said = async {
        while logged.count(text) == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SAFETY, said)
        .await
        .unwrap_or_else(|_| panic!("not said: {text}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_only_sends_is_told_once_that_no_worker_takes_what_arrives_and_when_one_does() {
    let logged = Logged::by_process(tracing::Level::INFO);
    let nameserver = std::env::var("DELAYLINE_ROCKETMQ")
        .expect("DELAYLINE_ROCKETMQ: run scripts/test, or start a nameserver by scripts/rocketmq");
    let name = format!("flow-{:016x}", RandomState::new().hash_one(0));
    let options = RocketMqOptions::new(nameserver).topic(&name).group(&name);
    let sender = RocketMqBackend::connect(options.clone()).await.unwrap();
    let departures = |numbers: std::ops::Range<u128>| -> Vec<_> {
        numbers
            .map(|number| Departure {
                wake: Wake {
                    id: TaskId::from_bytes(number.to_be_bytes()),
                    kind: "k".into(),
                    version: 1,
                },
                delay: Duration::from_secs(1),
            })
            .collect()
    };
    let mut batch = departures(0..20);
    while let Err(unsent) = sender.send(&batch).await {
        batch = unsent.failed.iter().map(|&place| batch[place].clone()).collect();
    }
    until_said(&logged, STOPPED).await;

    let worker = RocketMqBackend::connect(options).await.unwrap();
    let taking = async {
        loop {
            let arrivals = worker.receive(100).await.unwrap();
            worker.acknowledge(arrivals).await;
        }
    };
    tokio::select! {
        () = taking => {}
        () = until_said(&logged, FLOWS) => {}
    }
    assert_eq!(logged.count(STOPPED), 1);
    sender.close().await.unwrap();
    worker.close().await.unwrap();
}
