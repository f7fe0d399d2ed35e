//! Tests several shards, several receiving processes, and lost claims.

use super::*;

const MEMBERS: &str = "{delayline:wakes}:members";
/// Long enough for a slow machine, short enough to wait for.
const LEASE: Duration = Duration::from_millis(900);

fn in_shards(server: &RedisServer) -> RedisBackend {
    leased_in_shards(server, LEASE)
}

fn leased_in_shards(server: &RedisServer, lease: Duration) -> RedisBackend {
    builder(server).shards(16).lease(lease).build().unwrap()
}

fn receiving(backend: &Arc<RedisBackend>) -> tokio::task::JoinHandle<Result<Vec<Arrival>, Error>> {
    let backend = backend.clone();
    tokio::spawn(async move { backend.receive(100).await })
}

async fn until_members_is(server: &RedisServer, count: u64) {
    until(server, &["ZCARD", MEMBERS], |&members: &u64| members == count).await;
}

#[tokio::test]
async fn wake_ups_are_spread_over_all_shards() {
    let server = RedisServer::start();
    let backend = in_shards(&server);
    let batch: Vec<_> = (0..2_000).map(|number| departure(number, HOUR)).collect();
    safely(backend.send(&batch)).await.unwrap();
    let mut sum = 0;
    for shard in 0..16 {
        let key = format!("{{delayline:wakes:{shard}}}:due");
        let held: u64 = ask(&server, &["ZCARD", &key]);
        assert!((50..250).contains(&held), "shard {shard} has {held}");
        sum += held;
    }
    assert_eq!(sum, 2_000);
}

#[tokio::test]
async fn the_number_of_shards_stays_as_it_was_made() {
    let server = RedisServer::start();
    safely(in_shards(&server).send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    // A backend that would make 1 shard finds what is in the 16.
    let arrivals = safely(backend(&server).receive(10)).await.unwrap();
    assert_eq!(wakes(&arrivals), [wake(1)]);
}

#[tokio::test]
async fn another_number_of_shards_is_refused_by_an_error_that_names_both() {
    let server = RedisServer::start();
    safely(in_shards(&server).send(&[departure(1, HOUR)]))
        .await
        .unwrap();
    let other = builder(&server).shards(4).build().unwrap();
    let sent = safely(other.send(&[departure(2, HOUR)])).await.unwrap_err();
    assert_eq!(sent.failed, [0]);
    let received = safely(other.receive(1)).await.unwrap_err();
    let removed = safely(other.remove(&[wake(1)])).await.unwrap_err();
    for error in [sent.cause, received, removed] {
        assert!(!error.is_transient(), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("redis shards is \"4\": under this prefix there are 16,"),
            "{text}"
        );
    }
    // Under another prefix it may be so.
    let elsewhere = builder(&server).prefix("elsewhere").shards(4).build().unwrap();
    safely(elsewhere.send(&[departure(2, HOUR)])).await.unwrap();
    let kept: u16 = ask(&server, &["HGET", "{elsewhere:wakes}:shards", "shards"]);
    assert_eq!(kept, 4);
}

#[tokio::test]
async fn a_server_that_has_lost_everything_is_told_the_number_again() {
    let server = RedisServer::start();
    let backend = Arc::new(in_shards(&server));
    safely(backend.send(&[departure(1, HOUR)])).await.unwrap();
    let waiting = receiving(&backend);
    until_members_is(&server, 1).await;
    let () = ask(&server, &["FLUSHALL"]);
    until(
        &server,
        &["HGET", "{delayline:wakes}:shards", "shards"],
        |&kept: &Option<u16>| kept == Some(16),
    )
    .await;
    assert!(!waiting.is_finished());
}

#[tokio::test]
async fn what_is_no_number_of_shards_is_an_error_that_names_the_key() {
    let server = RedisServer::start();
    for kept in ["0", "1025", "-1", "many"] {
        let () = ask(&server, &["HSET", "{delayline:wakes}:shards", "shards", kept]);
        let error = safely(backend(&server).send(&[departure(1, HOUR)]))
            .await
            .unwrap_err()
            .cause;
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains("{delayline:wakes}:shards"), "{error}");
    }
}

#[test]
fn a_number_of_shards_that_cannot_be_is_refused() {
    for shards in [0, 1_025, u16::MAX] {
        let builder = RedisBackend::builder("redis://127.0.0.1");
        let error = builder.shards(shards).build().unwrap_err();
        assert!(error.to_string().contains("allowed are 1 to 1024"), "{error}");
    }
}

#[tokio::test]
async fn a_claim_that_lost_its_lease_cannot_acknowledge() {
    let server = RedisServer::start();
    let [late, next] = [(); 2].map(|()| builder(&server).lease(LEASE).build().unwrap());
    safely(late.send(&[departure(1, Duration::ZERO)])).await.unwrap();
    let lost = safely(late.receive(1)).await.unwrap();
    let held = safely(next.receive(1)).await.unwrap();
    assert_eq!(wakes(&lost), wakes(&held));

    safely(late.acknowledge(lost)).await;
    assert_eq!(
        ask::<u64>(&server, &["ZCARD", LEASED]),
        1,
        "it is another's by now"
    );
    safely(next.acknowledge(held)).await;
    assert_eq!(ask::<u64>(&server, &["ZCARD", LEASED]), 0);
}

#[tokio::test]
async fn the_shards_of_a_process_that_died_are_watched_by_another_within_a_lease() {
    let server = RedisServer::start();
    let [dead, alive] = [(); 2].map(|()| Arc::new(in_shards(&server)));
    let gone = receiving(&dead);
    until_members_is(&server, 1).await;
    let waiting = receiving(&alive);
    until_members_is(&server, 2).await;
    until_listening(&server, 2).await;
    // It dies without a farewell.
    gone.abort();
    drop(safely(gone).await);
    drop(dead);
    until_listening(&server, 1).await;
    let died = Instant::now();
    safely(waiting_for_all(&server, &alive, waiting)).await;
    // Not a measure of speed: two leases at the most, on a machine that is slow in between.
    assert!(died.elapsed() < SAFETY);
    until_members_is(&server, 1).await;
}

/// Sends one wake-up into every shard and receives them all.
async fn waiting_for_all(
    server: &RedisServer,
    backend: &Arc<RedisBackend>,
    first: tokio::task::JoinHandle<Result<Vec<Arrival>, Error>>,
) {
    let batch: Vec<_> = (0..200)
        .map(|number| departure(number, Duration::from_millis(5)))
        .collect();
    super::builder(server)
        .shards(16)
        .build()
        .unwrap()
        .send(&batch)
        .await
        .unwrap();
    let mut seen = BTreeSet::new();
    let mut arrivals = first.await.unwrap().unwrap();
    loop {
        seen.extend(wakes(&arrivals));
        backend.acknowledge(arrivals).await;
        if seen.len() == batch.len() {
            return;
        }
        arrivals = backend.receive(100).await.unwrap();
    }
}

#[tokio::test]
async fn shards_of_a_backend_that_closes_are_taken_over_at_once() {
    let server = RedisServer::start();
    let [leaving, staying] = [(); 2].map(|()| {
        // So long that no process finds out by the end of a lease.
        Arc::new(leased_in_shards(&server, Duration::from_secs(3_600)))
    });
    let gone = receiving(&leaving);
    until_members_is(&server, 1).await;
    let waiting = receiving(&staying);
    until_members_is(&server, 2).await;
    until_listening(&server, 2).await;
    until_quiet(&server).await;
    safely(leaving.close()).await.unwrap();
    assert!(safely(gone).await.unwrap().is_err());
    assert_eq!(ask::<u64>(&server, &["ZCARD", MEMBERS]), 1);
    safely(waiting_for_all(&server, &staying, waiting)).await;
}

#[tokio::test]
async fn of_a_burst_in_one_shard_every_receiver_gets_some() {
    let server = RedisServer::start();
    let handles: Vec<_> = (0..3).map(|_| Arc::new(backend(&server))).collect();
    let first: Vec<_> = handles.iter().map(receiving).collect();
    until_members_is(&server, 3).await;
    until_listening(&server, 3).await;
    // From here on all know each other, and one watches.
    until_quiet(&server).await;
    let batch: Vec<_> = (0..5_000)
        .map(|number| departure(number, Duration::from_millis(5)))
        .collect();
    safely(backend(&server).send(&batch)).await.unwrap();
    // Each takes one batch and no more: so all three are needed to take three.
    for receiving in first {
        assert!(!safely(receiving).await.unwrap().unwrap().is_empty());
    }
    // They were notified, and would come only because the watching one had not been heard of for long.
    assert_eq!(ask::<u64>(&server, &["ZCARD", MEMBERS]), 3);
}

#[tokio::test]
async fn each_shard_is_asked_about_by_one_process_only() {
    let server = RedisServer::start();
    let batch: Vec<_> = (0..1_000).map(|number| departure(number, HOUR)).collect();
    // With so short a lease every shard is polled once a second, and every process sends three heartbeats.
    let handles: Vec<_> = (0..4)
        .map(|_| Arc::new(leased_in_shards(&server, Duration::from_secs(1))))
        .collect();
    safely(handles[0].send(&batch)).await.unwrap();
    let receiving: Vec<_> = handles.iter().map(receiving).collect();
    until_members_is(&server, 4).await;
    until_listening(&server, 4).await;

    let started = Instant::now();
    let before = info(&server, "stats", "total_commands_processed:");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = info(&server, "stats", "total_commands_processed:");
    // A poll takes four commands, a heartbeat six. If every shard were polled by all four, that alone would be 1,024 in
    // 4 s.
    let seconds = started.elapsed().as_secs() + 1;
    let (looks, beats) = (16 * seconds, 4 * 4 * seconds);
    let most = 4 * looks + 6 * beats;
    assert!(after - before <= most, "{} commands", after - before);
    assert!(receiving.iter().all(|receiving| !receiving.is_finished()));
}
