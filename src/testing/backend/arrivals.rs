//! Cases of sent wake-ups that arrive.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::{BackendFixture, Case, departure, wake, wakes};
use crate::backend::Wake;
use crate::{Kind, TaskId};

/// A wake-up arrives as it was sent, and not before its delay has passed.
pub async fn what_is_sent_arrives_in_its_time(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(3);
    let start = Instant::now();
    case.send(&sent).await;
    let mut received = case.receive(1).await;
    let waited = start.elapsed();
    assert!(
        waited + fixture.earliness() >= case.delay(),
        "arrived after {waited:?}, sent with {:?}",
        case.delay()
    );
    received.extend(case.receive_all(&sent, 10, &received).await);
    assert!(received.iter().all(|wake| sent.contains(wake)), "{received:?}");
    case.close().await;
}

/// The longest kinds, the least and the greatest versions and ids arrive as they were sent.
pub async fn widest_contents_arrive_intact(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent: Vec<_> = [
        ("k".repeat(100), [0; 16], 0),
        ("é".repeat(50), [0xFF; 16], i64::MAX as u64),
        ("日".repeat(33) + "x", [0x80; 16], 1),
        (" ".to_owned(), [0x0A; 16], u64::from(u32::MAX) + 1),
    ]
    .into_iter()
    .map(|(kind, id, version)| Wake {
        id: TaskId::from_bytes(id),
        kind: Kind::from(kind),
        version,
    })
    .collect();
    case.send(&sent).await;
    let received = case.receive_all(&sent, 10, &[]).await;
    assert!(received.iter().all(|wake| sent.contains(wake)), "{received:?}");
    case.close().await;
}

/// A delay of zero arrives, where any delay can be held.
pub async fn a_delay_of_zero_arrives(fixture: &dyn BackendFixture) {
    let Some((case, _)) = Case::open_any(fixture).await else {
        return;
    };
    let sent = wakes(2);
    case.send_in(&sent, Duration::ZERO).await;
    case.receive_all(&sent, 10, &[]).await;
    case.close().await;
}

/// A batch of 1,000 arrives completely.
pub async fn a_batch_of_a_thousand_arrives_completely(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(1_000);
    case.send(&sent).await;
    case.receive_all(&sent, 500, &[]).await;
    case.close().await;
}

/// `receive` returns at most as many as were asked for, and the others afterwards.
pub async fn at_most_max_are_received(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(10);
    case.send(&sent).await;
    let mut received = case.receive(1).await;
    received.extend(case.receive_all(&sent, 3, &received).await);
    case.close().await;
}

/// Two versions of one id are two wake-ups: neither stands for the other.
pub async fn two_versions_of_an_id_are_two_wake_ups(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let old = wake();
    let new = Wake {
        version: old.version + 1,
        ..old.clone()
    };
    let sent = [new, old];
    case.send(&sent).await;
    case.receive_all(&sent, 10, &[]).await;
    case.close().await;
}

/// The same wake-up sent twice arrives once or twice, however it was sent.
pub async fn one_sent_twice_arrives_once_or_twice(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let [in_one_batch, in_two] = [wake(), wake()];
    case.send(&[in_one_batch.clone(), in_one_batch.clone(), in_two.clone()])
        .await;
    case.send(std::slice::from_ref(&in_two)).await;
    let mut received = case
        .receive_all(&[in_one_batch.clone(), in_two.clone()], 10, &[])
        .await;
    received.extend(case.what_still_comes(Duration::ZERO).await);
    for wake in [in_one_batch, in_two] {
        let count = received.iter().filter(|received| **received == wake).count();
        assert!((1..=2).contains(&count), "arrived {count} times");
    }
    case.close().await;
}

/// One that is due sooner arrives although a receiver waits for one that is due later, where any delay can be held.
pub async fn an_earlier_wake_up_overtakes_a_later_one(fixture: &dyn BackendFixture) {
    let Some((case, _)) = Case::open_any(fixture).await else {
        return;
    };
    let [later, earlier] = [wake(), wake()];
    case.send_in(std::slice::from_ref(&later), Duration::from_secs(3_600))
        .await;
    let mut receiving = std::pin::pin!(case.receive(10));
    let too_soon = tokio::time::timeout(case.delay(), &mut receiving).await;
    assert!(too_soon.is_err(), "arrived an hour early: {too_soon:?}");
    case.send(std::slice::from_ref(&earlier)).await;
    assert_eq!(receiving.await, [earlier]);
    case.close().await;
}

/// The longest delays are accepted, and do not arrive at once, where any delay can be held.
pub async fn a_long_delay_is_held(fixture: &dyn BackendFixture) {
    let Some((case, max)) = Case::open_any(fixture).await else {
        return;
    };
    let long = Duration::from_secs(400 * 86_400).min(max);
    let [long_wake, longest_wake, short_wake] = [wake(), wake(), wake()];
    let batch = vec![
        departure(&long_wake, long),
        departure(&longest_wake, max),
        departure(&short_wake, case.delay()),
    ];
    case.send_all(batch).await;
    let mut received: BTreeSet<_> = case.receive(10).await.into_iter().collect();
    received.extend(case.what_still_comes(Duration::ZERO).await);
    assert_eq!(received, BTreeSet::from([short_wake]));
    case.close().await;
}
