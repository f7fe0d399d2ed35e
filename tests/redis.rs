//! What is special to carrying wake-ups in Redis. What holds for every backend is in `tests/backend.rs`.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used)]

#[path = "support/redis.rs"]
mod support;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::backend::{Arrival, Backend, Departure, RedisBackend};
use delayline::{Error, TaskId, Wake};
use tokio::sync::mpsc;
use tokio::time::timeout;

use support::RedisServer;

const DUE: &str = "{delayline}:due";
const LEASED: &str = "{delayline}:leased";
const EARLIER: &str = "{delayline}:earlier:0";
const HOUR: Duration = Duration::from_secs(3_600);
/// Only so that a defect does not hang the tests.
const SAFETY: Duration = Duration::from_secs(60);

fn wake(number: u64) -> Wake {
    Wake {
        id: TaskId::from_bytes(u128::from(number).to_be_bytes()),
        kind: "order.cancel".into(),
        version: 1,
    }
}

fn departure(number: u64, delay: Duration) -> Departure {
    Departure {
        wake: wake(number),
        delay,
    }
}

fn backend(server: &RedisServer) -> RedisBackend {
    RedisBackend::connect(&server.url()).unwrap()
}

fn wakes(arrivals: &[Arrival]) -> Vec<Wake> {
    arrivals.iter().map(|arrival| arrival.wake.clone()).collect()
}

/// What `future` gives, unless it hangs.
async fn safely<T>(future: impl Future<Output = T>) -> T {
    timeout(SAFETY, future).await.expect("the test hangs")
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, command: &[&str]) -> T {
    let (name, args) = command.split_first().unwrap();
    redis::cmd(name).arg(args).query(&mut server.admin()).unwrap()
}

/// Waits until the server answers as wished.
async fn until<T: redis::FromRedisValue>(
    server: &RedisServer,
    command: &[&str],
    wished: impl Fn(&T) -> bool,
) {
    safely(async {
        while !wished(&ask(server, command)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Waits until `count` receivers sleep and listen.
async fn until_listening(server: &RedisServer, count: u64) {
    until(
        server,
        &["PUBSUB", "NUMSUB", EARLIER],
        |(_, listening): &(String, u64)| *listening == count,
    )
    .await;
}

/// One number of `INFO`.
fn info(server: &RedisServer, section: &str, field: &str) -> u64 {
    let text: String = ask(server, &["INFO", section]);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap_or("0");
    let digits: String = line
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}

#[tokio::test]
async fn delays_count_from_the_servers_clock_and_no_time_of_the_client_is_sent() {
    let server = RedisServer::start_with(&["--slowlog-log-slower-than", "0"]);
    let backend = backend(&server);
    let millis = |(seconds, micros): (u64, u64)| seconds * 1_000 + micros / 1_000;

    let before = millis(ask(&server, &["TIME"]));
    safely(backend.send(&[departure(1, Duration::from_micros(60_000_100))]))
        .await
        .unwrap();
    let after = millis(ask(&server, &["TIME"]));

    let [(member, score)]: [(Vec<u8>, u64); 1] =
        ask::<Vec<_>>(&server, &["ZRANGE", DUE, "0", "-1", "WITHSCORES"])
            .try_into()
            .unwrap();
    assert_eq!(member, wake(1).encode());
    // A part of a millisecond is rounded up, of the delay as of the clock.
    assert!(
        (before + 60_001..=after + 60_002).contains(&score),
        "{before} {score} {after}"
    );
    let log: Vec<Vec<redis::Value>> = ask(&server, &["SLOWLOG", "GET", "10"]);
    let call = log
        .iter()
        .map(|entry| redis::from_redis_value_ref::<Vec<Vec<u8>>>(&entry[3]).unwrap())
        .find(|call| call[0] == b"EVALSHA" && call.len() > 5)
        .unwrap();
    assert_eq!(call[5], b"60001");
}

#[tokio::test]
async fn what_a_dead_receiver_held_comes_to_another_when_the_lease_has_ended_and_not_before() {
    let server = RedisServer::start();
    let lease = Duration::from_millis(500);
    let dead = backend(&server).lease(lease).unwrap();
    safely(dead.send(&[departure(1, Duration::ZERO), departure(2, HOUR)]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(dead.receive(10)).await.unwrap()), [wake(1)]);
    let (_, lease_end): (Vec<u8>, u64) = ask::<Vec<_>>(&server, &["ZRANGE", LEASED, "0", "0", "WITHSCORES"])
        .pop()
        .unwrap();
    drop(dead);

    let alive = backend(&server).lease(lease).unwrap();
    assert_eq!(wakes(&safely(alive.receive(10)).await.unwrap()), [wake(1)]);
    let (seconds, micros): (u64, u64) = ask(&server, &["TIME"]);
    assert!(seconds * 1_000 + micros / 1_000 >= lease_end);
}

#[tokio::test]
async fn a_lease_that_began_while_a_receiver_slept_ends_for_it_too() {
    let server = RedisServer::start();
    let backend = backend(&server).lease(Duration::from_millis(300)).unwrap();
    safely(backend.send(&[departure(2, HOUR)])).await.unwrap();
    let receiving = tokio::spawn(async move { backend.receive(10).await });
    until_listening(&server, 1).await;
    let (seconds, _): (u64, u64) = ask(&server, &["TIME"]);
    let () = redis::cmd("ZADD")
        .arg(LEASED)
        .arg((seconds + 1) * 1_000)
        .arg(wake(1).encode())
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
        safely(sender.send(&batch)).await.unwrap();
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
    safely(sender.send(&[departure(0, HOUR)])).await.unwrap();
    // If it were found only by looking now and then, so many would take longer than the tests may.
    for number in 1..=20 {
        let receiving = tokio::spawn({
            let receiver = receiver.clone();
            async move { receiver.receive(10).await.unwrap() }
        });
        until_listening(&server, 1).await;
        safely(sender.send(&[departure(number, Duration::from_millis(5))]))
            .await
            .unwrap();
        let arrivals = safely(receiving).await.unwrap();
        assert_eq!(wakes(&arrivals), [wake(number)]);
        receiver.acknowledge(arrivals).await;
    }
}

#[tokio::test]
async fn without_the_right_to_publish_and_listen_it_works_by_looking() {
    let server = RedisServer::start();
    let () = ask(
        &server,
        &[
            "ACL",
            "SETUSER",
            "clerk",
            "on",
            ">s3cret",
            "+@all",
            "~*",
            "resetchannels",
        ],
    );
    let url = server.url().replace("redis://", "redis://clerk:s3cret@");
    let backend = Arc::new(RedisBackend::connect(&url).unwrap());
    safely(backend.send(&[departure(0, HOUR)])).await.unwrap();
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await.unwrap() }
    });
    until(&server, &["INFO", "commandstats"], |stats: &String| {
        stats.contains("cmdstat_subscribe")
    })
    .await;
    safely(backend.send(&[departure(1, Duration::from_millis(5))]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_server_that_does_not_know_resp3_is_served_too() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let backend = backend(&server);
    safely(backend.send(&[departure(1, Duration::from_millis(5))]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn waiting_costs_the_server_next_to_nothing() {
    let server = RedisServer::start();
    let backend = Arc::new(backend(&server));
    let batch: Vec<_> = (0..10_000).map(|number| departure(number, HOUR)).collect();
    safely(backend.send(&batch)).await.unwrap();
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    until_listening(&server, 1).await;
    // The look that follows at once is over when the server has seen a call and its three commands.
    until(&server, &["INFO", "commandstats"], |stats: &String| {
        stats.contains("cmdstat_time:calls=21,")
    })
    .await;

    let started = Instant::now();
    let before = info(&server, "stats", "total_commands_processed:");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = info(&server, "stats", "total_commands_processed:");
    // One look in 8 s, of four commands; and the connection and question of this test.
    let looks = started.elapsed().as_secs() / 8 + 1;
    assert!(after - before <= 4 * looks + 3, "{} commands", after - before);
    assert!(!receiving.is_finished());
}

#[tokio::test]
async fn after_flushall_and_script_flush_what_is_sent_arrives() {
    let server = RedisServer::start();
    let sender = backend(&server);
    let receiver = Arc::new(backend(&server));
    safely(sender.send(&[departure(1, Duration::from_millis(700)), departure(2, HOUR)]))
        .await
        .unwrap();
    for number in 3..8 {
        let receiving = tokio::spawn({
            let receiver = receiver.clone();
            async move { receiver.receive(10).await.unwrap() }
        });
        until_listening(&server, 1).await;
        let () = ask(&server, &["FLUSHALL"]);
        let () = ask(&server, &["SCRIPT", "FLUSH"]);
        safely(sender.send(&[departure(number, Duration::from_millis(5))]))
            .await
            .unwrap();
        assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(number)]);
    }
}

#[tokio::test]
async fn while_the_server_is_down_sending_fails_and_receiving_waits() {
    let mut server = RedisServer::start();
    let sender = backend(&server);
    let receiver = backend(&server);
    safely(sender.send(&[departure(1, HOUR)])).await.unwrap();
    let receiving = tokio::spawn(async move { receiver.receive(10).await });
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
    // The first call after the loss succeeds: no old failure is answered with.
    safely(sender.send(&batch)).await.unwrap();
    safely(sender.health()).await.unwrap();
    let received = safely(receiving).await.unwrap().unwrap();
    assert_eq!(wakes(&received), [wake(2), wake(3)]);
}

#[tokio::test]
async fn a_server_that_was_restarted_in_between_is_not_noticed_by_senders() {
    let mut server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.send(&[departure(1, HOUR)])).await.unwrap();
    server.kill();
    server.restart();
    safely(backend.send(&[departure(2, HOUR)])).await.unwrap();
}

#[tokio::test]
async fn a_server_that_hangs_fails_senders_and_is_used_again_when_it_answers() {
    let server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.health()).await.unwrap();
    server.signal("STOP");
    let error = safely(backend.send(&[departure(1, HOUR)])).await.unwrap_err();
    assert!(error.cause.is_transient(), "{error}");
    assert!(safely(backend.health()).await.unwrap_err().is_transient());
    server.signal("CONT");
    safely(backend.send(&[departure(2, HOUR)])).await.unwrap();
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
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(receiving).await.unwrap().unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_full_server_refuses_new_wake_ups_for_now_and_hands_out_those_it_has() {
    let server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    let () = ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let error = safely(backend.send(&[departure(2, Duration::ZERO)]))
        .await
        .unwrap_err();
    assert!(error.cause.is_transient(), "{error}");
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn foreign_members_are_counted_and_dropped() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let mut half = wake(7).encode();
    half.truncate(20);
    for (key, score, member) in [
        (DUE, "0", b"foreign".to_vec()),
        (DUE, "-inf", vec![0xD1]),
        (DUE, "1.5", half),
        (DUE, "2", Vec::new()),
        (LEASED, "3", vec![0xFF; 3_000]),
    ] {
        let () = redis::cmd("ZADD")
            .arg(key)
            .arg(score)
            .arg(member)
            .query(&mut server.admin())
            .unwrap();
    }
    // This one is never due, and must not keep receivers from sleeping.
    let () = ask(&server, &["ZADD", DUE, "inf", "never"]);
    safely(backend.send(&[departure(1, Duration::from_millis(50))]))
        .await
        .unwrap();
    let arrivals = safely(backend.receive(10)).await.unwrap();
    assert_eq!(wakes(&arrivals), [wake(1)]);
    safely(backend.acknowledge(arrivals)).await;
    assert_eq!(backend.garbled(), 5);
    assert_eq!(ask::<u64>(&server, &["ZCARD", DUE]), 1);
    assert_eq!(ask::<u64>(&server, &["ZCARD", LEASED]), 0);
}

#[tokio::test]
async fn foreign_messages_are_ignored() {
    let server = RedisServer::start();
    let backend = Arc::new(backend(&server));
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await.unwrap() }
    });
    until_listening(&server, 1).await;
    for message in ["", "-1", "soon", "18446744073709551615", "1e400", "\u{fffd}"] {
        let () = ask(&server, &["PUBLISH", EARLIER, message]);
    }
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_at_which_nothing_is_lost() {
    let server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    let () = ask(&server, &["SET", LEASED, "text"]);
    let error = safely(backend.receive(10)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let () = ask(&server, &["DEL", LEASED]);
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_wrong_password_is_an_error_without_the_password() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    for userinfo in [":s3cret@", "clerk:s3cret@", ""] {
        let url = server.url().replace("redis://", &format!("redis://{userinfo}"));
        let backend = RedisBackend::connect(&url).unwrap();
        let sent = safely(backend.send(&[departure(1, HOUR)])).await.unwrap_err();
        let errors = [
            sent.cause,
            safely(backend.health()).await.unwrap_err(),
            safely(backend.receive(1)).await.unwrap_err(),
        ];
        for error in errors {
            assert!(!error.is_transient(), "{error}");
            assert!(
                !format!("{error} {error:?} {backend:?}").contains("s3cret"),
                "{error:?}"
            );
        }
    }
    let url = server.url().replace("redis://", "redis://:right@");
    safely(RedisBackend::connect(&url).unwrap().health())
        .await
        .unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_never_comes_again() {
    let server = RedisServer::start();
    let backend = backend(&server).lease(Duration::from_millis(200)).unwrap();
    let batch: Vec<_> = (0..1_200)
        .map(|number| departure(number, Duration::ZERO))
        .collect();
    safely(backend.send(&batch)).await.unwrap();
    let mut seen = BTreeSet::new();
    while seen.len() < batch.len() {
        let arrivals = safely(backend.receive(10_000)).await.unwrap();
        seen.extend(wakes(&arrivals));
        safely(backend.acknowledge(arrivals)).await;
    }
    // Many leases later.
    safely(backend.send(&[departure(5_000, Duration::from_secs(1))]))
        .await
        .unwrap();
    assert_eq!(
        wakes(&safely(backend.receive(10_000)).await.unwrap()),
        [wake(5_000)]
    );
}

#[tokio::test]
async fn what_was_removed_does_not_come_held_or_leased() {
    let server = RedisServer::start();
    let backend = backend(&server).lease(Duration::from_millis(200)).unwrap();
    safely(backend.send(&[
        departure(1, Duration::ZERO),
        departure(2, Duration::from_millis(500)),
    ]))
    .await
    .unwrap();
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(1)]);
    safely(backend.remove(&[wake(1), wake(2)])).await.unwrap();
    safely(backend.send(&[departure(3, Duration::from_secs(1))]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(3)]);
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

#[tokio::test]
async fn who_only_sends_does_not_listen_and_who_is_closed_is_gone() {
    let server = RedisServer::start();
    let backend = Arc::new(backend(&server));
    safely(backend.send(&[departure(1, HOUR)])).await.unwrap();
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
async fn a_dropped_backend_lets_go_of_its_connections() {
    let server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    safely(backend.receive(1)).await.unwrap();
    drop(backend);
    until(&server, &["CLIENT", "LIST"], |clients: &String| {
        clients.lines().count() == 1
    })
    .await;
}

#[tokio::test]
async fn prefixes_and_databases_are_apart() {
    let server = RedisServer::start();
    let second = format!("{}/2", server.url());
    let backends = [
        backend(&server),
        backend(&server).prefix("other").unwrap(),
        RedisBackend::connect(&second).unwrap(),
    ];
    for (number, backend) in (0..).zip(&backends) {
        safely(backend.send(&[departure(number, Duration::ZERO)]))
            .await
            .unwrap();
    }
    for (number, backend) in (0..).zip(&backends) {
        assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(number)]);
    }
}

#[tokio::test]
async fn a_cluster_takes_all_keys() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let () = ask(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    until(&server, &["CLUSTER", "INFO"], |info: &String| {
        info.contains("cluster_state:ok")
    })
    .await;
    let backend = backend(&server).prefix("orders in Köln").unwrap();
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    let arrivals = safely(backend.receive(10)).await.unwrap();
    assert_eq!(wakes(&arrivals), [wake(1)]);
    safely(backend.acknowledge(arrivals)).await;
    assert_eq!(ask::<u64>(&server, &["DBSIZE"]), 0);
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let backend = || RedisBackend::connect("redis://127.0.0.1").unwrap();
    for prefix in ["", "a{b", "}", "a\nb", &"x".repeat(101)] {
        assert!(
            matches!(backend().prefix(prefix), Err(Error::Invalid { .. })),
            "{prefix:?}"
        );
    }
    for lease in [Duration::ZERO, Duration::from_secs(86_401)] {
        assert!(
            matches!(backend().lease(lease), Err(Error::Invalid { .. })),
            "{lease:?}"
        );
    }
}
