//! Another number of slots, while everybody works.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::*;

const LAYOUT: &str = "{delayline:wakes}:layout";

/// Every key of wake-ups, and of those that were taken.
fn wake_keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = ask(server, &["KEYS", "*"]);
    keys.retain(|key| key.ends_with(":due") || key.ends_with(":leased"));
    keys
}

fn slots(server: &RedisServer) -> (u64, u16, Option<u16>) {
    ask(server, &["HMGET", LAYOUT, "epoch", "slots", "former"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_number_of_slots_changes() {
    let server = RedisServer::start();
    let (found, mut finds) = mpsc::unbounded_channel();
    let handles = [Arc::new(backend(&server)), Arc::new(backend(&server))];
    for handle in handles.clone() {
        let found = found.clone();
        tokio::spawn(async move {
            while let Ok(arrivals) = handle.receive(100).await {
                found.send(wakes(&arrivals)).unwrap();
                handle.acknowledge(arrivals).await;
            }
        });
    }
    let ends = Arc::new(AtomicBool::new(false));
    let sending = tokio::spawn({
        let (sender, ends) = (backend(&server), ends.clone());
        async move {
            let mut count = 0;
            while !ends.load(Ordering::Relaxed) {
                let batch: Vec<_> = (count..count + 50)
                    .map(|number| departure(number, Duration::from_millis(number * 7 % 700)))
                    .collect();
                sender.send(&batch).await.unwrap();
                count += 50;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            count
        }
    });
    let keeper = backend(&server);
    for slots in [8, 3, 16, 1] {
        safely(keeper.reshard(slots, |_| ())).await.unwrap();
    }
    ends.store(true, Ordering::Relaxed);
    let count = safely(sending).await.unwrap();
    let mut seen = BTreeSet::new();
    while (seen.len() as u64) < count {
        seen.extend(safely(finds.recv()).await.unwrap());
    }
    assert_eq!(slots(&server), (5, 1, None));
    until(&server, &["KEYS", "*"], |_: &Vec<String>| {
        wake_keys(&server).is_empty()
    })
    .await;
    for handle in handles {
        safely(handle.close()).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_held_keeps_its_time_and_its_version() {
    let server = RedisServer::start();
    let keeper = backend(&server);
    let batch: Vec<_> = (0..1_200).map(|number| departure(number, HOUR)).collect();
    safely(keeper.send(&batch)).await.unwrap();
    let before: Vec<(Vec<u8>, i64)> = ask(&server, &["ZRANGE", DUE, "0", "-1", "WITHSCORES"]);
    let mut told = Vec::new();
    safely(keeper.reshard(2, |so_far| told.push(so_far)))
        .await
        .unwrap();
    let mut after: Vec<(Vec<u8>, i64)> = Vec::new();
    for slot in 0..2 {
        let key = format!("{{delayline:wakes:2:{slot}}}:due");
        after.extend(ask::<Vec<(Vec<u8>, i64)>>(
            &server,
            &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
        ));
    }
    after.sort();
    assert_eq!(after.len(), 1_200);
    for ((member, due), (moved, moved_due)) in before.iter().zip(&after) {
        assert_eq!(member, moved);
        // Each clock reading of the move is rounded to a ms, never to an earlier one.
        assert!(
            (0..=5_000).contains(&(moved_due - due)),
            "{due} became {moved_due}"
        );
    }
    assert_eq!(told.iter().map(|so_far| so_far.moved).max(), Some(1_200));
    assert_eq!(told.last().map(|so_far| so_far.left), Some(0));
}

#[tokio::test]
async fn what_is_leased_is_waited_for() {
    let server = RedisServer::start();
    let keeper = Arc::new(backend(&server));
    safely(keeper.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    let arrivals = safely(keeper.receive(1)).await.unwrap();
    let resharding = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.reshard(4, |_| ()).await }
    });
    until(&server, &["HGET", LAYOUT, "slots"], |&slots: &u16| slots == 4).await;
    assert!(!resharding.is_finished());
    // By its ticket of the epoch before.
    safely(keeper.acknowledge(arrivals)).await;
    safely(resharding).await.unwrap().unwrap();
    assert!(wake_keys(&server).is_empty());
}

#[tokio::test]
async fn what_was_begun_and_interrupted_is_ended_by_the_next() {
    let server = RedisServer::start();
    let keeper = backend(&server);
    let batch: Vec<_> = (0..3_000).map(|number| departure(number, HOUR)).collect();
    safely(keeper.send(&batch)).await.unwrap();
    let mut parts = 0;
    let interrupted = keeper.reshard(4, |_| {
        parts += 1;
        assert!(parts < 3, "interrupted");
    });
    let interrupted = std::panic::AssertUnwindSafe(interrupted);
    assert!(
        safely(futures_util::FutureExt::catch_unwind(interrupted))
            .await
            .is_err()
    );
    assert_eq!(slots(&server), (2, 4, Some(1)));

    // Both epochs are there for everybody meanwhile.
    safely(keeper.remove(&(0..3_000).step_by(2).map(wake).collect::<Vec<_>>()))
        .await
        .unwrap();
    let held: u64 = wake_keys(&server)
        .iter()
        .map(|key| ask::<u64>(&server, &["ZCARD", key]))
        .sum();
    assert_eq!(held, 1_500);

    safely(backend(&server).reshard(2, |_| ())).await.unwrap();
    assert_eq!(slots(&server), (3, 2, None));
    let held: u64 = wake_keys(&server)
        .iter()
        .map(|key| ask::<u64>(&server, &["ZCARD", key]))
        .sum();
    assert_eq!(held, 1_500);
}

#[tokio::test]
async fn who_was_not_told_of_other_slots_is_told_when_it_sends() {
    let server = RedisServer::start();
    let stale = backend(&server);
    safely(stale.send(&[departure(1, HOUR)])).await.unwrap();
    safely(backend(&server).reshard(2, |_| ())).await.unwrap();
    safely(stale.send(&[departure(2, HOUR), departure(3, HOUR)]))
        .await
        .unwrap();
    assert!(
        wake_keys(&server)
            .iter()
            .all(|key| key.starts_with("{delayline:wakes:2:"))
    );
}

#[tokio::test]
async fn foreign_members_do_not_keep_a_slot_from_being_emptied() {
    let server = RedisServer::start();
    let keeper = backend(&server);
    safely(keeper.send(&[departure(1, HOUR)])).await.unwrap();
    let () = ask(&server, &["ZADD", DUE, "inf", "never", "1", "foreign"]);
    safely(keeper.reshard(2, |_| ())).await.unwrap();
    assert_eq!(ask::<u64>(&server, &["ZCARD", FOREIGN]), 2);
    assert_eq!(wake_keys(&server).len(), 1);
}

#[tokio::test]
async fn a_number_of_slots_that_cannot_be_is_refused() {
    let server = RedisServer::start();
    for slots in [0, 1_025] {
        let error = safely(backend(&server).reshard(slots, |_| ())).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}
