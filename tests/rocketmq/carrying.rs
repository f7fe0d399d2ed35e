//! Tests that wake-ups arrive through levels.

use super::*;

#[tokio::test]
async fn the_level_table_is_the_brokers() {
    let backend = Place::new().connect().await;
    assert_eq!(backend.delays().reach, Reach::Levels(LEVELS.parse().unwrap()));
    backend.health().await.unwrap();
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_configured_table_does_not_replace_what_the_broker_tells() {
    let backend = RocketMqBackend::connect(Place::new().options().levels("3s 4s".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!(backend.delays().reach, Reach::Levels(LEVELS.parse().unwrap()));
    backend.close().await.unwrap();
}

#[tokio::test]
async fn the_topic_is_made_and_known_before_anything_consumes() {
    let place = Place::new();
    let backend = place.connect().await;
    let raw = Raw::new(&nameserver());
    // A topic that a broker creates by itself has 4 queues.
    assert_eq!(raw.queues(&place.topic).await, 8);
    raw.close().await;
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_topic_that_is_there_stays_as_its_operator_made_it() {
    let place = Place::new();
    let raw = Raw::new(&nameserver());
    raw.make_topic(&place.topic, 3).await;
    timeout(SAFETY, async {
        while raw.queues(&place.topic).await == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the topic becomes known");
    let backend = place.connect().await;
    send(&backend, departures(0..10, ONE)).await;
    assert_eq!(receive_all(&backend, 10).await.len(), 10);
    assert_eq!(raw.queues(&place.topic).await, 3);
    raw.close().await;
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_batch_arrives_through_two_levels() {
    let backend = Place::new().connect().await;
    let mut batch = departures(0..250, ONE);
    batch.extend(departures(250..500, TWO));
    let sent = Instant::now();
    send(&backend, batch).await;
    let receiver = backend.clone();
    let seen = tokio::spawn(async move { receive_all(&receiver, 500).await })
        .await
        .unwrap();
    assert_eq!(seen, (0..500).map(wake).collect());
    assert!(sent.elapsed() >= TWO, "a broker holds a message for its level");
    assert_eq!(backend.foreign(), 0);
    backend.close().await.unwrap();
}

#[tokio::test]
async fn two_backends_of_one_group_share_without_loss() {
    let place = Place::new();
    let (a, b) = (place.connect().await, place.connect().await);
    let share = |backend: Arc<RocketMqBackend>, all: Arc<tokio::sync::Mutex<BTreeSet<Wake>>>| {
        tokio::spawn(async move {
            let mut count = 0_usize;
            while let Ok(arrivals) = backend.receive(50).await {
                count += arrivals.len();
                all.lock()
                    .await
                    .extend(arrivals.iter().map(|arrival| arrival.wake.clone()));
                backend.acknowledge(arrivals).await;
            }
            count
        })
    };
    let all = Arc::new(tokio::sync::Mutex::new(BTreeSet::new()));
    let (at_a, at_b) = (share(a.clone(), all.clone()), share(b.clone(), all.clone()));
    // Queues move to the second one while messages are on their way.
    let mut sent = 0;
    timeout(SAFETY, async {
        while sent < 2_000 || all.lock().await.len() < sent as usize {
            if sent < 2_000 {
                send(&a, departures(sent..sent + 100, ONE)).await;
                sent += 100;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("all arrive");
    a.close().await.unwrap();
    b.close().await.unwrap();
    let (at_a, at_b) = (at_a.await.unwrap(), at_b.await.unwrap());
    assert!(at_a > 0 && at_b > 0, "both had some: {at_a} and {at_b}");
    assert_eq!(*all.lock().await, (0..2_000).map(wake).collect());
}

#[tokio::test]
async fn foreign_messages_are_dropped_counted_and_not_redelivered() {
    let place = Place::new();
    let backend = place.connect().await;
    let garbled = wake(1).encode()[1..].to_vec();
    let mut wrong_kind = wake(1).encode();
    wrong_kind.push(b'\n');
    let raw = Raw::new(&nameserver());
    raw.send(
        &place.topic,
        vec![
            b"hello".to_vec(),
            b"{}".to_vec(),
            garbled,
            wrong_kind,
            vec![0xD1; 3_000],
        ],
    )
    .await;
    raw.close().await;
    send(&backend, departures(0..3, ONE)).await;
    assert_eq!(receive_all(&backend, 3).await.len(), 3);
    timeout(SAFETY, async {
        while backend.foreign() < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("every foreign message is counted");
    backend.close().await.unwrap();
    place.assert_nothing_sent_back().await;
}

#[tokio::test]
async fn a_batch_that_is_never_acknowledged_is_answered_all_the_same() {
    let place = Place::new();
    let backend = place.connect().await;
    send(&backend, departures(0..20, ONE)).await;
    let mut held = Vec::new();
    while held.len() < 20 {
        let more = timeout(SAFETY, backend.receive(100)).await.expect("all arrive");
        held.extend(more.unwrap());
    }
    // Beyond the ten seconds, and beyond the level by which a refused message would come again.
    let again = arriving(&backend, Duration::from_secs(10 + 5 + 3)).await;
    let wakes: BTreeSet<_> = held.iter().map(|arrival| arrival.wake.clone()).collect();
    assert_eq!((wakes.len(), again), (20, vec![]), "each came once");
    backend.close().await.unwrap();
    place.assert_nothing_sent_back().await;
    // Nor was it left to another worker.
    let heir = place.connect().await;
    assert_eq!(arriving(&heir, Duration::from_secs(5)).await, []);
    // Too late, and no harm.
    backend.acknowledge(held).await;
    heir.close().await.unwrap();
}

#[tokio::test]
async fn what_a_closed_backend_did_not_acknowledge_comes_to_another() {
    let place = Place::new();
    let backend = place.connect().await;
    send(&backend, departures(0..100, ONE)).await;
    let mut held = Vec::new();
    while held.len() < 100 {
        held.extend(
            timeout(SAFETY, backend.receive(100))
                .await
                .expect("it arrives")
                .unwrap(),
        );
    }
    backend.close().await.unwrap();
    let heir = place.connect().await;
    assert_eq!(receive_all(&heir, 100).await.len(), 100);
    heir.close().await.unwrap();
    place.assert_nothing_sent_back().await;
}

#[tokio::test]
async fn a_delay_that_is_no_level_fails_alone() {
    let backend = Place::new().connect().await;
    let mut batch = departures(0..3, ONE);
    batch[1].delay = Duration::from_millis(1_500);
    // The others may fail, too, on a machine so busy that the broker does not answer in time.
    let error = timeout(SAFETY, async {
        loop {
            let error = backend.send(&batch).await.unwrap_err();
            if error.failed == [1] {
                return error;
            }
        }
    });
    let error = error.await.expect("the others are sent");
    assert!(
        matches!(error.cause, Error::Invalid { field: "delay", .. }),
        "{error}"
    );
    let seen = receive_all(&backend, 2).await;
    assert_eq!(seen, [wake(0), wake(2)].into());
    backend.close().await.unwrap();
}

#[tokio::test]
async fn abandoned_calls_lose_nothing() {
    let backend = Place::new().connect().await;
    for number in 0..20 {
        let batch = departures(number * 50..(number + 1) * 50, ONE);
        let _ = timeout(Duration::from_millis(number), backend.send(&batch)).await;
    }
    // The outcome of those is unknown; these are taken.
    send(&backend, departures(5_000..5_100, ONE)).await;
    let mut wanted: BTreeSet<_> = (5_000..5_100).map(wake).collect();
    timeout(SAFETY, async {
        while !wanted.is_empty() {
            if let Ok(arrivals) = timeout(Duration::from_millis(5), backend.receive(7)).await {
                let arrivals = arrivals.unwrap();
                for arrival in &arrivals {
                    wanted.remove(&arrival.wake);
                }
                backend.acknowledge(arrivals).await;
            }
        }
    })
    .await
    .expect("all arrive, however often a receive is abandoned");
    backend.close().await.unwrap();
}
