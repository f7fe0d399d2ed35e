//! Cases of receivers, and of how often each wake-up comes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{BackendFixture, Case, patiently, wake, wakes};
use crate::backend::Backend;

/// `receive` waits while there is nothing, and takes wake-ups that are sent while it waits.
pub async fn receive_waits_for_what_is_sent_meanwhile(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wake();
    let mut receiving = std::pin::pin!(case.receive(10));
    let from_nothing = timeout(case.delay(), &mut receiving).await;
    assert!(
        from_nothing.is_err(),
        "received {from_nothing:?}, but nothing was sent"
    );
    case.send(std::slice::from_ref(&sent)).await;
    assert_eq!(receiving.await, [sent]);
    case.close().await;
}

/// Each wake-up goes to one of two receivers in a process.
pub async fn two_receivers_share_the_wake_ups(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    share(&case, [case.backend.clone(), case.backend.clone()]).await;
    case.close().await;
}

/// Each wake-up goes to one of two processes, where processes can share a backend.
pub async fn two_processes_share_the_wake_ups(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    if let Some(other) = fixture.open_again().await {
        share(&case, [case.backend.clone(), other.clone()]).await;
        other.close().await.expect("closing works");
    }
    case.close().await;
}

async fn share(case: &Case<'_>, handles: [Arc<dyn Backend>; 2]) {
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut receivers = JoinSet::new();
    for handle in handles {
        let tell = tell.clone();
        receivers.spawn(async move {
            loop {
                let arrivals = handle.receive(7).await.expect("receiving works");
                for arrival in &arrivals {
                    // No receiver is left: the case is over.
                    let _over = tell.send(arrival.wake.clone());
                }
                handle.acknowledge(arrivals).await;
            }
        });
    }
    let mut sent = wakes(200);
    case.send(&sent).await;
    let mut received = Vec::new();
    while sent.iter().any(|wake| !received.contains(wake)) {
        received.extend(patiently(told.recv()).await);
    }
    // A repeat comes about now, or when a lease ends that should have been ended by its acknowledgement.
    let rest = 2 * case.delay() + case.fixture.lease().unwrap_or_default();
    let everything = async {
        loop {
            received.extend(told.recv().await);
        }
    };
    let _ends: Result<(), _> = timeout(rest, everything).await;
    if case.fixture.gives_each_to_one_receiver() {
        received.sort();
        sent.sort();
        assert!(received == sent, "{} arrived of {}", received.len(), sent.len());
    }
}

/// A call of `receive` that is dropped, whenever that is, loses nothing: its wake-ups come to the next one.
pub async fn a_dropped_receive_loses_nothing(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(50);
    case.send(&sent).await;
    let patience = case.delay() / 7;
    let all = async {
        let mut received = Vec::new();
        // Some are dropped at once, some after a little: before, at and after arrival.
        for patience in [Duration::ZERO, patience].into_iter().cycle() {
            if sent.iter().all(|wake| received.contains(wake)) {
                return;
            }
            if let Ok(arrivals) = timeout(patience, case.backend.receive(3)).await {
                let arrivals = arrivals.expect("receiving works");
                received.extend(arrivals.iter().map(|arrival| arrival.wake.clone()));
                case.backend.acknowledge(arrivals).await;
            }
        }
    };
    patiently(all).await;
    case.close().await;
}

/// An unacknowledged wake-up comes again after the lease, where there are leases.
pub async fn an_unacknowledged_one_comes_again(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    if let Some(lease) = fixture.lease() {
        let sent = wake();
        case.send(std::slice::from_ref(&sent)).await;
        let first = patiently(case.backend.receive(10))
            .await
            .expect("receiving works");
        let start = Instant::now();
        assert_eq!(
            first.iter().map(|arrival| &arrival.wake).collect::<Vec<_>>(),
            [&sent]
        );
        assert_eq!(case.receive(10).await, [sent]);
        let waited = start.elapsed();
        // The lease began when the backend took it, which may be a little before the receiver got it.
        assert!(
            waited >= lease / 2,
            "came again after {waited:?}, with a lease of {lease:?}"
        );
    }
    case.close().await;
}

/// An acknowledged wake-up does not come again, not even after the lease.
pub async fn an_acknowledged_one_does_not_come_again(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(5);
    case.send(&sent).await;
    case.receive_all(&sent, 10, &[]).await;
    let again = case.what_still_comes(fixture.lease().unwrap_or_default()).await;
    assert_eq!(again, [], "acknowledged, but came again");
    case.close().await;
}
