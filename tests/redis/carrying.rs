//! Tests when wake-ups arrive, at which receiver, and how often.

use tokio::sync::mpsc;

use super::*;

#[tokio::test]
async fn delays_count_from_the_servers_clock_and_no_time_of_the_client_is_sent() {
    let server = RedisServer::start_with(&["--slowlog-log-slower-than", "0"]);
    let backend = backend(&server);
    let millis = |(seconds, micros): (u64, u64)| seconds * 1_000 + micros / 1_000;

    let before = millis(ask(&server, &["TIME"]));
    send_until_taken(&backend, &[departure(1, Duration::from_micros(60_000_100))]).await;
    let after = millis(ask(&server, &["TIME"]));

    let [(kept, score)]: [(Vec<u8>, u64); 1] =
        ask::<Vec<_>>(&server, &["ZRANGE", DUE, "0", "-1", "WITHSCORES"])
            .try_into()
            .unwrap();
    assert_eq!(kept, member(&wake(1)));
    // A part of a millisecond is rounded up, of the delay and of the clock.
    assert!(
        (before + 60_001..=after + 60_002).contains(&score),
        "{before} {score} {after}"
    );
    let log: Vec<Vec<redis::Value>> = ask(&server, &["SLOWLOG", "GET", "100"]);
    let call = log
        .iter()
        .map(|entry| redis::from_redis_value_ref::<Vec<Vec<u8>>>(&entry[3]).unwrap())
        .find(|call| call[0] == b"EVALSHA" && call.len() == 12)
        .unwrap();
    assert_eq!(call[8], b"60001");
}

#[tokio::test]
async fn what_a_dead_receiver_held_comes_to_another_when_the_lease_has_ended_and_not_before() {
    let server = RedisServer::start();
    let lease = Duration::from_millis(500);
    let dead = builder(&server).lease(lease).build().unwrap();
    send_until_taken(&dead, &[departure(1, Duration::ZERO), departure(2, HOUR)]).await;
    assert_eq!(wakes(&safely(dead.receive(10)).await.unwrap()), [wake(1)]);
    let (_, lease_end): (Vec<u8>, u64) = ask::<Vec<_>>(&server, &["ZRANGE", LEASED, "0", "0", "WITHSCORES"])
        .pop()
        .unwrap();
    drop(dead);

    let alive = builder(&server).lease(lease).build().unwrap();
    assert_eq!(wakes(&safely(alive.receive(10)).await.unwrap()), [wake(1)]);
    let (seconds, micros): (u64, u64) = ask(&server, &["TIME"]);
    assert!(seconds * 1_000 + micros / 1_000 >= lease_end);
}

#[tokio::test]
async fn a_lease_that_began_while_a_receiver_slept_ends_for_it_too() {
    let server = RedisServer::start();
    let backend = builder(&server)
        .lease(Duration::from_millis(300))
        .build()
        .unwrap();
    send_until_taken(&backend, &[departure(2, HOUR)]).await;
    let receiving = tokio::spawn(async move { backend.receive(10).await });
    until_listening(&server, 1).await;
    let (seconds, _): (u64, u64) = ask(&server, &["TIME"]);
    let () = redis::cmd("ZADD")
        .arg(LEASED)
        .arg((seconds + 1) * 1_000)
        .arg(member(&wake(1)))
        .query(&mut server.admin())
        .unwrap();
    assert_eq!(wakes(&safely(receiving).await.unwrap().unwrap()), [wake(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_each_wake_up_is_handed_to_one_receiver() {
    const COUNT: u64 = 20_000;
    let server = RedisServer::start();
    let (found, mut finds) = mpsc::unbounded_channel();
    let handles = [Arc::new(backend(&server)), Arc::new(backend(&server))];
    let receivers: Vec<_> = handles
        .iter()
        .flat_map(|handle| [handle.clone(), handle.clone()])
        .map(|handle| {
            let found = found.clone();
            tokio::spawn(async move {
                while let Ok(arrivals) = handle.receive(300).await {
                    found.send(wakes(&arrivals)).unwrap();
                    handle.acknowledge(arrivals).await;
                }
            })
        })
        .collect();
    let sender = backend(&server);
    let numbers: Vec<u64> = (0..COUNT).collect();
    for part in numbers.chunks(700) {
        let batch: Vec<_> = part
            .iter()
            .map(|&number| departure(number, Duration::from_millis(number % 400)))
            .collect();
        send_until_taken(&sender, &batch).await;
    }
    let mut seen = BTreeSet::new();
    while seen.len() < numbers.len() {
        for wake in safely(finds.recv()).await.unwrap() {
            assert!(seen.insert(wake.clone()), "{wake:?} came twice");
        }
    }
    // All acknowledged: nothing is left.
    until(&server, &["EXISTS", DUE, LEASED], |&count: &u64| count == 0).await;
    assert!(finds.try_recv().is_err());
    for handle in handles {
        safely(handle.close()).await.unwrap();
    }
    for receiver in receivers {
        safely(receiver).await.unwrap();
    }
}

#[tokio::test]
async fn an_earlier_wake_up_wakes_a_sleeping_receiver_of_another_process_at_once() {
    let server = RedisServer::start();
    let sender = backend(&server);
    let receiver = Arc::new(backend(&server));
    send_until_taken(&sender, &[departure(0, HOUR)]).await;
    // If they were found only by periodic polls, all together would take longer than a test may.
    safely(async {
        for number in 1..=20 {
            let receiving = tokio::spawn({
                let receiver = receiver.clone();
                async move { receiver.receive(10).await.unwrap() }
            });
            until_listening(&server, 1).await;
            send_until_taken(&sender, &[departure(number, Duration::from_millis(5))]).await;
            let arrivals = receiving.await.unwrap();
            assert_eq!(wakes(&arrivals), [wake(number)]);
            receiver.acknowledge(arrivals).await;
        }
    })
    .await;
}

#[tokio::test]
async fn waiting_costs_the_server_next_to_nothing() {
    let server = RedisServer::start();
    let backend = Arc::new(backend(&server));
    let batch: Vec<_> = (0..10_000).map(|number| departure(number, HOUR)).collect();
    send_until_taken(&backend, &batch).await;
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    until_asleep(&server).await;

    let started = Instant::now();
    let before = info(&server, "stats", "total_commands_processed:");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = info(&server, "stats", "total_commands_processed:");
    // In 8 s a poll, of four commands, a heartbeat, of six, and a ping of the connection; and the connection and
    // request of this test.
    let rounds = started.elapsed().as_secs() / 8 + 1;
    assert!(after - before <= 11 * rounds + 3, "{} commands", after - before);
    assert!(!receiving.is_finished());
}

#[tokio::test]
async fn what_was_acknowledged_never_comes_again() {
    let server = RedisServer::start();
    let backend = builder(&server)
        .lease(Duration::from_millis(200))
        .build()
        .unwrap();
    let batch: Vec<_> = (0..1_200)
        .map(|number| departure(number, Duration::ZERO))
        .collect();
    send_until_taken(&backend, &batch).await;
    let mut seen = BTreeSet::new();
    while seen.len() < batch.len() {
        let arrivals = safely(backend.receive(10_000)).await.unwrap();
        seen.extend(wakes(&arrivals));
        safely(backend.acknowledge(arrivals)).await;
    }
    // Many leases later.
    send_until_taken(&backend, &[departure(5_000, Duration::from_secs(1))]).await;
    assert_eq!(
        wakes(&safely(backend.receive(10_000)).await.unwrap()),
        [wake(5_000)]
    );
}

#[tokio::test]
async fn what_was_removed_does_not_come() {
    let server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.send(&[
        departure(1, Duration::from_millis(200)),
        departure(2, Duration::from_millis(300)),
    ]))
    .await
    .unwrap();
    safely(backend.remove(&[wake(1), wake(4)])).await.unwrap();
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(2)]);
}

#[tokio::test]
async fn an_old_version_does_not_stand_for_a_newer() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let newer = Wake {
        version: 2,
        ..wake(1)
    };
    let newer = Departure {
        wake: newer,
        delay: Duration::ZERO,
    };
    safely(backend.send(&[newer.clone(), departure(1, HOUR)]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [newer.wake]);
    safely(backend.remove(&[wake(1)])).await.unwrap();
    assert_eq!(ask::<u64>(&server, &["ZCARD", LEASED]), 1);
}
