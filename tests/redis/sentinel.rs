//! Tests another server that becomes the master, by sentinels.

#[cfg(feature = "redis-tls")]
use super::security::{BEHIND_SENTINELS, SINGLE, rules, trusting};
use super::support::RedisSentinel;
use super::*;

/// Waits until the replica has all that was written until now.
fn replicate(servers: &RedisSentinel) {
    let mut master = servers.admin(servers.master());
    let () = redis::cmd("SET").arg("mark").arg(1).query(&mut master).unwrap();
    let copies: u64 = redis::cmd("WAIT").arg(1).arg(60_000).query(&mut master).unwrap();
    assert_eq!(copies, 1);
}

fn receiving(backend: &Arc<RedisBackend>) -> tokio::task::JoinHandle<Vec<Arrival>> {
    let backend = backend.clone();
    tokio::spawn(async move { backend.receive(10).await.unwrap() })
}

/// Loses a master by `lose`: sending goes on at the next, and replicated wake-ups arrive from it.
async fn loses_a_master(
    mut servers: RedisSentinel,
    url: &str,
    lose: impl FnOnce(&mut RedisSentinel) -> usize,
) {
    let connect = || Arc::new(RedisBackend::new(url).unwrap());
    let [sender, receiver, idle] = [(); 3].map(|()| connect());
    until_healthy(&idle).await;
    let first = receiving(&receiver);
    send_until_taken(&sender, &[departure(0, Duration::ZERO)]).await;
    let arrivals = safely(first).await.unwrap();
    safely(receiver.acknowledge(arrivals)).await;
    send_until_taken(
        &sender,
        &[departure(1, Duration::from_secs(1)), departure(2, HOUR)],
    )
    .await;
    replicate(&servers);
    let waiting = receiving(&receiver);

    let former = lose(&mut servers);
    let failed_for = send_until_taken(&sender, &[departure(3, HOUR)]).await;
    println!("sends failed for {failed_for:.1?}");
    assert_ne!(servers.wait_for_promotion(former), former);
    assert_eq!(wakes(&safely(waiting).await.unwrap()), [wake(1)]);
    // One that was idle meanwhile, and one that is new.
    send_until_taken(&idle, &[departure(4, Duration::ZERO)]).await;
    assert_eq!(wakes(&safely(receiving(&receiver)).await.unwrap()), [wake(4)]);
    send_until_taken(&connect(), &[departure(5, Duration::ZERO)]).await;
    assert_eq!(wakes(&safely(receiving(&receiver)).await.unwrap()), [wake(5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_master_dies_its_replica_is_used() {
    let servers = tokio::task::spawn_blocking(RedisSentinel::start).await.unwrap();
    let url = servers.url();
    loses_a_master(servers, &url, RedisSentinel::kill_master).await;
}

#[cfg(feature = "redis-tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_as_well() {
    let rules = rules("delayline", &format!("{SINGLE} {BEHIND_SENTINELS}"));
    let start = move || RedisSentinel::start_with_tls(&rules);
    let servers = tokio::task::spawn_blocking(start).await.unwrap();
    let url = trusting(&servers.url(), &servers.ca());
    loses_a_master(servers, &url, RedisSentinel::kill_master).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_master_hangs_its_replica_is_used() {
    let servers = tokio::task::spawn_blocking(RedisSentinel::start).await.unwrap();
    let url = servers.url();
    loses_a_master(servers, &url, RedisSentinel::stop_master).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_comes_back_as_a_replica_is_left_for_the_new_one() {
    let mut servers = tokio::task::spawn_blocking(RedisSentinel::start).await.unwrap();
    let sender = RedisBackend::new(&servers.url()).unwrap();
    safely(sender.send(&[departure(1, HOUR)])).await.unwrap();
    let former = servers.stop_master();
    servers.wait_for_promotion(former);
    // It has the connection still, and does not know at first that it is no master any more.
    servers.signal(former, "CONT");
    servers.wait_for_replica();
    send_until_taken(&sender, &[departure(2, Duration::ZERO)]).await;
    let receiver = Arc::new(RedisBackend::new(&servers.url()).unwrap());
    assert_eq!(wakes(&safely(receiving(&receiver)).await.unwrap()), [wake(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_hangs_is_not_the_only_one_that_is_asked() {
    let servers = tokio::task::spawn_blocking(RedisSentinel::start).await.unwrap();
    servers.signal_sentinel(0, "STOP");
    for number in 0..5 {
        let backend = RedisBackend::new(&servers.url()).unwrap();
        send_until_taken(&backend, &[departure(number, HOUR)]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_only_the_servers_ask_for_will_do() {
    let servers = tokio::task::spawn_blocking(RedisSentinel::start_with_password)
        .await
        .unwrap();
    let backend = Arc::new(RedisBackend::new(&servers.url()).unwrap());
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(receiving(&backend)).await.unwrap()), [wake(1)]);
    for wrong in [":wrong-secret@", ""] {
        let url = servers.url().replace(":secret@", wrong);
        let backend = RedisBackend::new(&url).unwrap();
        let error = safely(backend.send(&[departure(2, HOUR)]))
            .await
            .unwrap_err()
            .cause;
        assert!(!error.is_transient(), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
}
